"""An estimate from a sample against the whole job: what can be counted, and a time that is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import JobError
from dialoom.estimate import Estimate, estimate, input_size, sample_job
from dialoom.run import RunResult, run
from dialoom.runtime.plan import Plan
from support.jobs import SCRIPTED, TINY, chat, small_plan

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("ray")]

DIALOGUES = [chat(f"d{i}", *(["hello", "and", "bye"][: 1 + i % 3])) for i in range(60)]
SLOW = SCRIPTED | {"latency_s": 0.01, "latency_jitter": 0.5, "concurrency": 4}


def from_sample(plan: Plan, folder: Path, dialogues: int) -> Estimate:
    size = input_size(plan)
    part = run(sample_job(plan, dialogues, folder, size))
    assert part.status == 0
    return estimate(plan, part.folder, size)


def paid(result: RunResult, name: str) -> float:
    return float(result.progress.counts[name])


@pytest.mark.parametrize("where", [{}, {"in_actor": True}])
def test_counts_of_the_whole_lie_in_the_range(tmp_path: Path, where: dict[str, Any]) -> None:
    plan = small_plan(tmp_path, DIALOGUES, engines={"main": SLOW | where})
    found = from_sample(plan, tmp_path / "sample", 15)
    whole = run(plan)
    assert whole.status == 0
    assert (found.size.dialogues, found.units, found.sampled) == (60, 60, 15)
    assert found.calls.low <= paid(whole, "calls") <= found.calls.high
    assert found.calls.value == pytest.approx(paid(whole, "calls"), rel=0.05)
    assert found.prompt_tokens.value == pytest.approx(paid(whole, "prompt_tokens"), rel=0.1)
    assert found.output_tokens.value == pytest.approx(paid(whole, "output_tokens"), rel=0.1)
    assert found.cost_usd is None
    seconds = found.seconds
    assert 0 < seconds.low < seconds.value < seconds.high
    # No job is faster than its calls at half the latency, the least that the jitter leaves, four at a time.
    assert seconds.high >= paid(whole, "calls") * 0.005 / 4


def test_a_sweep_is_played_stage_by_stage_and_replayed_calls_take_no_time(tmp_path: Path) -> None:
    sweep = {"grid": {"seed": [0, 1, 2]}}
    engine = SLOW | {"rule": "dialoom.methods.tracker._rule:answer"}  # equal prompts are equal calls in every cell
    plan = small_plan(tmp_path, DIALOGUES, engines={"main": engine}, sweep=sweep)
    found = from_sample(plan, tmp_path / "sample", 12)
    assert found.units == 180
    once = from_sample(small_plan(tmp_path / "one", DIALOGUES, engines={"main": engine}), tmp_path / "sample-one", 12)
    assert found.calls.value == pytest.approx(3 * once.calls.value)
    assert found.seconds.value < 2 * once.seconds.value


def test_an_earlier_run_may_be_larger_and_name_its_engines_otherwise(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, DIALOGUES, engines={"main": SLOW})
    whole = run(plan)
    again = estimate(plan, whole.folder)
    data = {"reader": "chat", "paths": "data.jsonl", "limit": 6}
    unused = SCRIPTED | {"model": "unused"}
    few = small_plan(tmp_path, None, engines={"other": SLOW, "spare": unused}, roles={"main": "other"}, data=data)
    found = estimate(few, whole.folder)
    assert (found.units, found.sampled) == (6, 60)
    assert found.calls.value == pytest.approx(again.calls.value * 12 / 120)
    assert 0 < found.seconds.value < again.seconds.value / 2
    # Six dialogues of two turns in a row, four calls at once: longer than all at the rate of a full engine.
    assert found.seconds.value > again.seconds.value / 20


def test_a_run_answered_by_its_log_says_nothing_of_time(tmp_path: Path) -> None:
    plan = small_plan(tmp_path / "a", DIALOGUES[:6], engines={"main": SLOW})
    first = run(plan)
    second = run(small_plan(tmp_path / "b", DIALOGUES[:6], engines={"main": SLOW}, run={"reuse": [str(first.folder)]}))
    found = estimate(plan, second.folder)
    assert found.calls.value == paid(first, "calls")
    assert found.seconds.value != found.seconds.value


def test_a_sample_of_another_method_is_an_error(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, DIALOGUES[:4], engines={"main": SLOW})
    other = small_plan(tmp_path / "other", DIALOGUES[:4], methods=[TINY | {"name": "other"}], engines={"main": SLOW})
    sample = run(other).folder
    with pytest.raises(JobError, match="the sample has no unit of tiny"):
        estimate(plan, sample)
