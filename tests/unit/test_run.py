"""The end of a run: what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import RunRefused
from dialoom.outcome import Outcome
from dialoom.prices import list_prices
from dialoom.run import RUN_FILE, RunResult, check_same, run_folder, versions, write_head
from dialoom.runtime.ending import Ending
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from dialoom.runtime.progress import Progress
from support.jobs import SCRIPTED, small_plan


def result(ending: Ending, *outcomes: Outcome) -> RunResult:
    made = RunResult(RunFolder("x"), ending, Progress())
    made.outcomes = {o.value: 1 for o in outcomes}
    return made


@given(st.lists(st.sampled_from(Outcome)))
def test_a_run_that_ended_is_complete_where_nothing_is_owed(outcomes: list[Outcome]) -> None:
    made = result(Ending.DONE, *outcomes)
    owed = any(o.owed for o in outcomes)
    assert made.complete == (not owed)
    assert made.status == (3 if owed or Outcome.BAD_INPUT in outcomes else 0)


@pytest.mark.parametrize("ending", [e for e in Ending if e is not Ending.DONE])
def test_a_run_that_stopped_early_is_not(ending: Ending) -> None:
    made = result(ending, Outcome.ACCEPTED)
    assert not made.complete
    assert made.status == (130 if ending is Ending.INTERRUPTED else 4)
    assert ending.outcome.owed


def test_where_the_run_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = small_plan(tmp_path / "job", run={"root": "some/runs/"}, name="mine")
    assert run_folder(plan).path == tmp_path / "some" / "runs" / "mine"


def test_versions_name_what_decides_a_result() -> None:
    assert {"dialoom", "python", "platform", "ray", "pyarrow"} <= set(versions())


def test_the_price_of_every_engine_is_recorded_and_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.make()
    engines = {"own": SCRIPTED | {"price": "gpu"}, "vendor": SCRIPTED | {"price": "gpt-4.1"}, "free": SCRIPTED}
    fields: dict[str, Any] = {"prices": {"gpu": {"gpu_hour": 2.0}}, "roles": {"main": "own"}}
    write_head(folder, small_plan(tmp_path / "job", engines=engines, **fields))
    write_head(folder, small_plan(tmp_path / "job", engines={"own": SCRIPTED}, **fields))
    prices = (folder.read_json(RUN_FILE) or {})["prices"]
    nothing = {"input": 0.0, "cached_input": 0.0, "output": 0.0, "reasoning": 0.0}
    assert prices["own"] is prices["free"] is None
    date, table = list_prices()
    listed = table["gpt-4.1"]
    assert prices["vendor"] == {
        "name": "gpt-4.1", "input": listed.input, "cached_input": listed.cached_input, "output": listed.output,
        "reasoning": listed.output, "gpu_hour": 0.0, "currency": "USD", "as_of": date,
    }  # fmt: skip
    write_head(folder, small_plan(tmp_path / "job", engines=engines, **fields))
    prices = (folder.read_json(RUN_FILE) or {})["prices"]
    assert prices["own"] == {**nothing, "name": "gpu", "gpu_hour": 2.0, "currency": "USD", "as_of": None}


def test_the_engines_rate_comes_with_the_calls_that_are_reused(tmp_path: Path) -> None:
    made, folder = RunFolder(tmp_path / "made"), RunFolder(tmp_path / "run")
    for each in (made, folder):
        each.make()
    write_head(made, small_plan(tmp_path / "job"))
    figures = {"engine_time": {"main": {"gpu_s": 50.0}}, "paid": {"main": {"run_s": 100.0}}}
    made.put_json(RUN_FILE, (made.read_json(RUN_FILE) or {}) | figures)
    write_head(folder, small_plan(tmp_path / "job", run={"reuse": [str(made)]}))
    assert (folder.read_json(RUN_FILE) or {})["source_gpu_s_per_run_s"] == {"main": 0.5}


def calls_plan(folder: Path, **calls: int) -> Plan:
    """A sweep whose cells ask for so many calls a turn."""
    return small_plan(folder / "job", sweep={"cells": [{"name": n, "methods.0.calls": k} for n, k in calls.items()]})


def test_a_cell_that_was_left_out_comes_back_with_its_own_settings_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.make()
    for cells in ({"a": 1, "b": 2}, {"a": 1}):
        plan = calls_plan(tmp_path, **cells)
        check_same(folder, plan)
        write_head(folder, plan)
    record = folder.read_json(RUN_FILE) or {}
    assert set(record["identity"]["cells"]) == set(record["cells"]) == {"a", "b"}
    assert record["planned_cells"] == ["a"]
    assert record["digest"] == calls_plan(tmp_path, a=1).digest
    with pytest.raises(
        RunRefused, match=r"cells\.b\.methods\.tiny\.settings\.calls: 2 -> 4\. Give the job another name"
    ):
        check_same(folder, calls_plan(tmp_path, a=1, b=4))
    check_same(folder, calls_plan(tmp_path, a=1, b=2, c=3))
