"""Runs that end early or meet what ends processes: rows for every unit, a reason, and a rerun that goes on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import LimitReached
from dialoom.run import RunResult, run
from dialoom.runtime.ending import Ending
from dialoom.runtime.folder import RunFolder
from support.command import command
from support.jobs import SCRIPTED, TINY, chat, small_plan, write_job
from support.results import outcomes, rows

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray"),
]  # Ray starts slowly

DIALOGUES = [chat(f"d{i}", "hello", "bye") for i in range(40)]
ALL = {f"d{i}" for i in range(40)}
SLOW = SCRIPTED | {"concurrency": 4, "latency_s": 0.1}
IN_ACTORS = SCRIPTED | {"in_actor": True, "replicas": 2, "concurrency": 8, "latency_s": 0.02}


def assert_goes_on(folder: Path, first: RunResult, **fields: Any) -> RunResult:
    """The same job without what stopped it comes to its end and repeats nothing."""
    again = run(small_plan(folder, DIALOGUES, **fields))
    assert again.status == 0
    assert outcomes(again) == dict.fromkeys(ALL, "accepted")
    assert again.progress.skipped == first.outcomes.get("accepted", 0)
    return again


def test_a_replica_that_hangs_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    engine = IN_ACTORS | {"use": "support.hanging_engine:PLUGIN", "model": str(tmp_path / "hung")}
    result = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}, limits={"stall_s": 8.0}))
    assert (tmp_path / "hung").exists()
    assert result.status == 0
    assert outcomes(result) == dict.fromkeys(ALL, "accepted")


def test_wall_time_is_over(tmp_path: Path) -> None:
    first = run(small_plan(tmp_path, DIALOGUES, engines={"main": SLOW}, limits={"wall_s": 0.8}))
    assert (first.ending, first.status) == (Ending.LIMIT, 4)
    assert "limits.wall_s: 0.8 s are over" in str(first.error)
    assert set(outcomes(first)) == ALL
    assert set(outcomes(first).values()) == {"accepted", "job_limit"}
    again = assert_goes_on(tmp_path, first)
    paid = first.progress.counts["calls"] + again.progress.counts["calls"]
    assert paid == 4 * len(ALL), "calls of dialogues that were stopped half-way are not paid again"


def test_the_stages_of_a_sweep_share_one_budget(tmp_path: Path) -> None:
    sweep = {"cells": [{"name": "one"}, {"name": "two", "engines.main.model": "other"}]}

    def session(name: str, **limits: Any) -> RunResult:
        engine = SLOW | {"in_actor": True, "latency_s": 0.05}
        plan = small_plan(tmp_path / name, DIALOGUES, engines={"main": engine}, sweep=sweep, limits=limits)
        # Loaded models do not fit together: each cell is a stage of its own.
        return run(replace(plan, engines={n: replace(e, heavy=True) for n, e in plan.engines.items()}))

    whole = session("whole")
    assert whole.status == 0
    tokens = int(whole.progress.counts["prompt_tokens"] + whole.progress.counts["output_tokens"])
    first = session("limited", tokens=tokens * 3 // 4)
    assert (first.ending, first.status) == (Ending.LIMIT, 4)
    assert "limits.tokens" in str(first.error)
    ended = {cell: {r["outcome"] for r in rows(first) if r["cell"] == cell} for cell in ("one", "two")}
    assert ended == {"one": {"accepted"}, "two": {"accepted", "job_limit"}}


def test_a_run_held_to_a_sum_stops_there_and_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dialoom = command(monkeypatch, capsys)
    engine = SLOW | {"price": "own", "latency_s": 0.05}
    job = write_job(tmp_path, DIALOGUES, engines={"main": engine}, prices={"own": {"input": 1e6, "output": 1e6}})
    done = dialoom("run", job, "--max-cost", 400, "--log-format", "quiet")
    assert done.status == 4
    assert "of $400 are spent" in done.err
    spent = RunFolder(tmp_path / "runs/small").read_json("run.json") or {}
    assert spent["last_session"]["cost_usd"] >= 400
    assert dialoom("run", job, "--log-format", "quiet").status == 0


@pytest.mark.parametrize("cost_usd", [1e-6, 0.35], ids=["while loading", "later"])
def test_the_price_of_gpu_time_ends_a_run(tmp_path: Path, cost_usd: float) -> None:
    engine = SLOW | {"in_actor": True, "price": "own"}
    prices = {"own": {"gpu_hour": 360.0}}  # ten cents a second
    fields = {"engines": {"main": engine}, "prices": prices}
    first = run(small_plan(tmp_path, DIALOGUES, limits={"cost_usd": cost_usd}, **fields))
    assert (first.ending, first.status) == (Ending.LIMIT, 4)
    assert "limits.cost_usd" in str(first.error)
    assert first.progress.counts["cost_usd"] == 0.0, "tokens cost nothing here"
    assert "job_limit" in outcomes(first).values()
    assert_goes_on(tmp_path, first, **fields)


def test_too_many_units_fail(tmp_path: Path) -> None:
    engine = SLOW | {"latency_s": 0.01, "fail_share": 1.0, "fail_times": None}
    first = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}, run={"max_attempts": 2}))
    assert (first.ending, first.status) == (Ending.LIMIT, 4)
    assert isinstance(first.error, LimitReached)
    assert "limits.error_share" in str(first.error)
    assert "failure injected by fail_share" in str(first.error)
    assert set(outcomes(first)) == ALL
    assert set(outcomes(first).values()) <= {"infrastructure", "job_limit"}
    assert_goes_on(tmp_path, first)


@pytest.mark.parametrize("where", ["worker", "actor"])
def test_an_engine_that_never_answers_ends_the_run_in_time(tmp_path: Path, where: str) -> None:
    engine = SCRIPTED | {"latency_s": 1e5, "in_actor": where == "actor"}
    began = time.monotonic()
    first = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}, limits={"stall_s": 8.0, "drain_s": 0.5}))
    assert time.monotonic() - began < 60
    assert (first.ending, first.status) == (Ending.STALLED, 4)
    assert "no call and no unit was finished for 8 s: 40 units wait for an answer" in str(first.error)
    assert outcomes(first) == dict.fromkeys(ALL, "job_limit")
    assert_goes_on(tmp_path, first)


def test_calls_under_way_get_the_time_to_drain(tmp_path: Path) -> None:
    """With time to drain a call under way is kept; without it is dropped and paid again."""
    for name, drain_s, kept in (("patient", 30.0, True), ("hasty", 0.0, False)):
        engine = SCRIPTED | {"latency_s": 1.5, "concurrency": 40}
        limits = {"wall_s": 0.5, "drain_s": drain_s}
        first = run(small_plan(tmp_path / name, DIALOGUES, engines={"main": engine}, limits=limits))
        assert outcomes(first) == dict.fromkeys(ALL, "job_limit")
        assert (first.progress.counts["calls"] > 0) == kept
        again = assert_goes_on(tmp_path / name, first)
        assert again.progress.counts["replayed"] == first.progress.counts["calls"]


def test_a_dialogue_that_ends_its_worker_becomes_an_error_row(tmp_path: Path) -> None:
    records = [*DIALOGUES, chat("bad", "this is DEADLY")]
    plan = small_plan(
        tmp_path, records, methods=[TINY | {"deadly": "DEADLY"}], engines={"main": SLOW}, run={"workers": 2}
    )
    result = run(plan)
    found = outcomes(result)
    assert found.pop("bad") == "infrastructure"
    assert found == dict.fromkeys(ALL, "accepted")
    assert result.status == 3
    (row,) = [r for r in rows(result) if r["dialogue_id"] == "bad"]
    assert row["error_kind"] == "poison"
    assert "ended its worker 4 times" in row["error"]


def test_a_call_that_ends_its_engine_becomes_an_error_row(tmp_path: Path) -> None:
    records = [*DIALOGUES, chat("bad", "this is DEADLY")]
    engine = IN_ACTORS | {"rule": "support.rules:deadly"}
    result = run(small_plan(tmp_path, records, engines={"main": engine}, run={"workers": 2}))
    found = outcomes(result)
    assert found.pop("bad") == "infrastructure"
    assert found == dict.fromkeys(ALL, "accepted"), "only the guilty call is given up"
    assert result.status == 3
    (row,) = [r for r in rows(result) if r["dialogue_id"] == "bad"]
    assert row["error_kind"] == "poison"
    (call,) = [c for c in rows(result, "calls") if c["dialogue_id"] == "bad"]
    assert call["attempts"] >= 4
    assert call["error"].startswith("poison: ")


def test_a_dialogue_that_holds_up_its_worker_becomes_an_error_row(tmp_path: Path) -> None:
    records = [*DIALOGUES, chat("bad", "this is ENDLESS")]
    tiny = TINY | {"blocking": "ENDLESS"}
    # A worker that is silent for half of stall_s is replaced.
    limits = {"stall_s": 10.0, "drain_s": 1.0}
    plan = small_plan(tmp_path, records, methods=[tiny], engines={"main": SLOW}, run={"workers": 2}, limits=limits)
    result = run(plan)
    found = outcomes(result)
    assert found.pop("bad") == "infrastructure"
    assert found == dict.fromkeys(ALL, "accepted")
    (row,) = [r for r in rows(result) if r["dialogue_id"] == "bad"]
    assert row["error_kind"] == "poison"
    assert "no answer for 5 s" in row["error"]
