"""The size of a job, the part of it that is its sample, and what a sample written by hand says of money and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dialoom.estimate import Estimate, Range, Size, estimate, input_size, sample_job
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from dialoom.traces.tables import TABLES, columns
from support.command import command
from support.jobs import SCRIPTED, chat, plan_of, small_plan, write_job

DIALOGUES = [chat(f"d{i}", *(["hello", "and", "bye"][: 1 + i % 3])) for i in range(40)]


def test_the_size_is_that_of_what_will_be_read(tmp_path: Path) -> None:
    whole = input_size(small_plan(tmp_path, [*DIALOGUES, b"{no record"]))
    assert (whole.dialogues, whole.user_turns, whole.bad_records) == (40, 79, 1)


@pytest.mark.parametrize(("stride", "limit", "dialogues"), [(1, 7, 7), (3, None, 14), (3, 5, 5), (13, 9, 4)])
def test_stride_and_limit_count(tmp_path: Path, stride: int, limit: int | None, dialogues: int) -> None:
    data = {"reader": "chat", "paths": "data.jsonl", "stride": stride, "limit": limit}
    plan = small_plan(tmp_path, DIALOGUES, data=data)
    size = input_size(plan)
    chosen = range(0, 40, stride)[:limit]
    assert size.dialogues == dialogues == len(chosen)
    assert size.user_turns == sum(1 + i % 3 for i in chosen)
    part = sample_job(plan, 4, tmp_path / "sample", size).options.data
    taken = range(0, 40, part.stride)[: part.limit]
    assert len(taken) == 4
    assert set(taken) <= set(chosen)


PRICES = {"cheap": {"input": 1.0, "output": 2.0}, "dear": {"input": 10.0, "output": 20.0}, "own": {"gpu_hour": 3.6}}
CHEAP = SCRIPTED | {"price": "cheap"}
OWN = SCRIPTED | {"price": "own", "in_actor": True, "concurrency": 1}
TWO_MODELS = {"cells": [{"name": "a"}, {"name": "b", "engines.main.model": "other", "engines.main.price": "dear"}]}
TWO_SEEDS = {"grid": {"seed": [0, 1]}}
TOKENS = {"prompt_tokens": 1000, "cached_tokens": 0, "output_tokens": 100, "reasoning_tokens": 0}
JOB = Size(dialogues=8, user_turns=8, bad_records=0)
START = datetime(2026, 1, 1, tzinfo=UTC)


def sample_of(
    folder: Path, cells: Sequence[str], calls: Sequence[int] = (1, 1, 1, 1), answered: Mapping[str, bool] | None = None
) -> RunFolder:
    """A run of one user turn a dialogue, with so many calls in each, one second apart.

    ``answered`` says which cells an engine answered (default: all); then the cells' calls are equal.
    """
    units: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for d, n in enumerate(calls):
        for cell in cells:
            key = {"dialogue_id": f"d{d}", "method": "tiny", "cell": cell, "trial": 0}
            units.append({**key, "outcome": "accepted", "n_user_turns": 1, "n_calls": n})
            for k in range(n):
                digest = f"{d} {k}" if answered is not None else f"{d} {k} {cell}"
                sent = START + timedelta(seconds=len(rows))
                rows.append({
                    **key, **TOKENS, "turn": 0, "call": k, "digest": digest, "role": "main", "engine": "main",
                    "replica": "0", "replayed": answered is not None and not answered[cell], "sent_at": sent,
                    "latency_s": 1.0, "queue_s": 0.0,
                })  # fmt: skip
    (folder / "traces").mkdir(parents=True)
    for name, table in (("dialogues", units), ("calls", rows)):
        pq.write_table(pa.Table.from_batches([columns(TABLES[name], table)]), folder / f"traces/{name}.parquet")
    return RunFolder(folder)


def usd(found: Range | None) -> float:
    assert found is not None
    return found.value


def test_every_call_costs_what_its_own_engine_asks_for(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, engines={"main": CHEAP}, prices=PRICES, sweep=TWO_MODELS)
    found = estimate(plan, sample_of(tmp_path / "sample", ["a", "b"]), JOB)
    assert found.calls.value == 16
    # A call at the cheap one: 1,000 at $1 and 100 at $2 a million; ten times that at the other; eight of each.
    assert usd(found.cost_usd) == pytest.approx(8 * 0.0012 + 8 * 0.012)
    assert found.paid.cost_usd == found.cost_usd
    assert found.paid.calls == found.calls
    assert found.notes == ()


@pytest.mark.parametrize("answered", [{"seed=0": True, "seed=1": False}, {"seed=0": False, "seed=1": False}])
def test_equal_calls_are_paid_once_and_borne_by_each_cell(tmp_path: Path, answered: Mapping[str, bool]) -> None:
    """Also where the sample is a run that was resumed, and its last session found them all in its log."""
    plan = small_plan(tmp_path, engines={"main": CHEAP}, prices=PRICES, sweep=TWO_SEEDS)
    found = estimate(plan, sample_of(tmp_path / "sample", list(answered), answered=answered), JOB)
    assert (found.calls.value, found.paid.calls.value) == (16, 8)
    assert (found.prompt_tokens.value, found.paid.prompt_tokens.value) == (16_000, 8_000)
    assert (found.output_tokens.value, found.paid.output_tokens.value) == (1_600, 800)
    assert usd(found.cost_usd) == pytest.approx(16 * 0.0012)
    assert usd(found.paid.cost_usd) == pytest.approx(8 * 0.0012)


def test_calls_that_a_reused_run_answers_are_not_paid(tmp_path: Path) -> None:
    (tmp_path / "other/calls").mkdir(parents=True)
    run = {"reuse": [str(tmp_path / "other")]}
    plan = small_plan(tmp_path, engines={"main": CHEAP}, prices=PRICES, run=run)
    found = estimate(plan, sample_of(tmp_path / "sample", [""], answered={"": False}), JOB)
    assert (found.calls.value, found.paid.calls.value) == (8, 0)
    assert usd(found.paid.cost_usd) == 0.0


@pytest.mark.parametrize("gpus", [0.0, 1.0, 4.0])
def test_gpus_cost_the_time_that_is_played(tmp_path: Path, gpus: float) -> None:
    plan = small_plan(tmp_path, engines={"main": OWN | {"replicas": 2}}, prices=PRICES)
    engines = {n: replace(e, resources={"num_gpus": gpus}) for n, e in plan.engines.items()}
    found = estimate(replace(plan, engines=engines), sample_of(tmp_path / "sample", [""]), JOB)
    assert found.seconds.value == pytest.approx(4.0)  # eight calls of a second, two at a time
    assert usd(found.cost_usd) == pytest.approx(4.0 * 2 * max(gpus, 1.0) * 0.001)
    assert found.paid.cost_usd == found.cost_usd is not None
    assert found.cost_usd.high == pytest.approx(usd(found.cost_usd) * 1.15)


def test_gpus_are_paid_in_their_own_stage_alone(tmp_path: Path) -> None:
    cells = [{"name": "a"}, {"name": "b", "engines.main.model": "other", "engines.main.price": "own10"}]
    prices = PRICES | {"own10": {"gpu_hour": 36.0}}
    plan = small_plan(tmp_path, engines={"main": OWN}, prices=prices, sweep={"cells": cells})
    heavy = replace(plan, engines={n: replace(e, heavy=True) for n, e in plan.engines.items()})
    found = estimate(heavy, sample_of(tmp_path / "sample", ["a", "b"]), JOB)
    assert found.seconds.value == pytest.approx(16.0)
    assert usd(found.cost_usd) == pytest.approx(8.0 * 0.001 + 8.0 * 0.01)


def without_price(folder: Path) -> Plan:
    cells = [{"name": "a"}, {"name": "b", "engines.main": SCRIPTED | {"model": "other"}}]
    return small_plan(folder, engines={"main": CHEAP}, prices=PRICES, sweep={"cells": cells})


def test_an_engine_without_a_price_is_named_and_the_total_is_not_known(tmp_path: Path) -> None:
    found = estimate(without_price(tmp_path), sample_of(tmp_path / "sample", ["a", "b"]), JOB)
    assert (found.cost_usd, found.paid.cost_usd) == (None, None)
    assert found.notes == ("the cost is not known: engine 'main-2' has no price",)


def test_gpu_hours_that_cannot_be_counted_are_no_zero(tmp_path: Path) -> None:
    elsewhere = small_plan(tmp_path, engines={"main": SCRIPTED | {"price": "own"}}, prices=PRICES)
    found = estimate(elsewhere, sample_of(tmp_path / "sample", [""]), JOB)
    assert found.cost_usd is None
    assert "do not run here" in found.notes[0]
    here = small_plan(tmp_path, engines={"main": OWN}, prices=PRICES)
    found = estimate(here, sample_of(tmp_path / "replayed", [""], answered={"": False}), JOB)
    assert found.cost_usd is None
    assert "says nothing of time" in found.notes[0]


def test_sixteen_cells_of_a_dialogue_are_one_draw(tmp_path: Path) -> None:
    def found(cells: int) -> Estimate:
        names = [f"seed={i}" for i in range(cells)]
        folder = tmp_path / str(cells)
        engine = CHEAP | {"concurrency": 1}
        plan = small_plan(folder, engines={"main": engine}, prices=PRICES, sweep={"grid": {"seed": [*range(cells)]}})
        return estimate(plan, sample_of(folder / "sample", names, calls=[1, 2, 3, 4, 5, 6, 7, 8]), JOB)

    one, many = found(1), found(16)
    assert (many.sampled, many.sampled_dialogues) == (128, 8)
    for name in ("calls", "prompt_tokens", "cost_usd", "seconds"):
        a, b = getattr(one, name), getattr(many, name)
        assert a.low < a.value < a.high
        assert (b.value, b.low, b.high) == pytest.approx((16 * a.value, 16 * a.low, 16 * a.high)), name


def test_the_command_shows_the_bill_first_and_keeps_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = write_job(tmp_path, engines={"main": CHEAP}, prices=PRICES, sweep=TWO_SEEDS)
    answered = {"seed=0": True, "seed=1": False}
    sample = sample_of(tmp_path / "sample", list(answered), answered=answered)
    sample.put_json("run.json", {"digest": plan_of(job).digest})
    done = command(monkeypatch, capsys)("estimate", job, "--from", sample.path, "--json", tmp_path / "out.json")
    assert done.status == 0, done.err
    assert done.out.index("cost, paid") < done.out.index("cost, attributed")
    assert "--max-cost USD" in done.out
    record: dict[str, Any] = orjson.loads((tmp_path / "out.json").read_bytes())
    assert record["calls"]["value"] == 2 * record["paid"]["calls"]["value"] == 4.0
    assert record["cost_usd"]["value"] == pytest.approx(2 * record["paid"]["cost_usd"]["value"])
