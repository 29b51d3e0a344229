"""The end of a run: what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.outcome import Outcome
from dialoom.run import RunResult, run_folder, versions
from dialoom.runtime.ending import Ending
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.progress import Progress
from support.jobs import small_plan


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
