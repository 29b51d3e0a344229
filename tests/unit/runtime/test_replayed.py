"""Which recorded engine each engine of a replayed job stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dialoom.errors import JobError
from dialoom.job import load_job
from dialoom.run import write_head
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan, make_plan
from support.jobs import SCRIPTED, small_plan, write_job

MODELS = {"grid": {"engines.main.model": ["a", "b"], "methods.0.calls": [1, 2]}}


def recorded(folder: Path, **fields: Any) -> Path:
    """A run folder as far as planning a replay reads it."""
    plan = small_plan(folder / "recorded", **fields)
    run = RunFolder(folder / "run")
    run.make()
    write_head(run, plan)
    return run.path


def replay(folder: Path, run: Path, **fields: Any) -> Plan:
    return make_plan(*load_job(write_job(folder / "job", **fields)), str(run))


def models(plan: Plan) -> dict[str, str]:
    return {v.cell: plan.engines[v.roles["main"]].identity.model for v in plan.variants}


def test_each_cell_replays_its_own_engine_and_none_is_started(tmp_path: Path) -> None:
    run = recorded(tmp_path, sweep=MODELS)
    plan = replay(tmp_path, run, sweep=MODELS)
    assert {e.use for e in plan.engines.values()} == {"replay"}
    assert plan.digest == small_plan(tmp_path / "again", sweep=MODELS).digest
    expected = {"model=a,calls=1": "a", "model=a,calls=2": "a", "model=b,calls=1": "b", "model=b,calls=2": "b"}
    assert models(plan) == expected
    assert len(plan.engines) == 2, "cells of one recorded engine share the one that stands for it"
    assert plan.recorded == (str(run),)


def test_a_swept_role_replays_the_engine_it_names(tmp_path: Path) -> None:
    engines = {"small": SCRIPTED | {"model": "a"}, "large": SCRIPTED | {"model": "b"}}
    fields: dict[str, Any] = {"engines": engines, "sweep": {"grid": {"roles.main": ["small", "large"]}}}
    plan = replay(tmp_path, recorded(tmp_path, **fields), **fields)
    assert models(plan) == {"main=small": "a", "main=large": "b"}


def test_the_resolved_replay_is_the_same_one_and_so_is_a_replay_of_it(tmp_path: Path) -> None:
    plan = replay(tmp_path, recorded(tmp_path, sweep=MODELS), sweep=MODELS)
    path = tmp_path / "resolved.yaml"
    path.write_text(yaml.safe_dump(dict(plan.job)))
    again = make_plan(*load_job(path))
    assert (again.digest, again.engines) == (plan.digest, plan.engines)
    second = RunFolder(tmp_path / "second")
    second.make()
    write_head(second, plan)
    twice = replay(tmp_path, second.path, sweep=MODELS)
    assert twice.digest == plan.digest
    assert set(twice.recorded) == {str(second.path), str(tmp_path / "run")}


def test_new_cells_replay_an_engine_that_all_recorded_cells_share(tmp_path: Path) -> None:
    run = recorded(tmp_path, sweep={"grid": {"methods.0.calls": [1, 2]}})
    plan = replay(tmp_path, run, sweep={"grid": {"methods.0.calls": [2, 3]}})
    assert models(plan) == {"calls=2": "scripted", "calls=3": "scripted"}
    assert models(replay(tmp_path, run)) == {"": "scripted"}


def test_a_sweep_replays_a_run_without_one(tmp_path: Path) -> None:
    plan = replay(tmp_path, recorded(tmp_path), sweep={"grid": {"methods.0.calls": [1, 2]}})
    assert models(plan) == {"calls=1": "scripted", "calls=2": "scripted"}


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (None, MODELS, r"cell 'model=a,calls=1' sets 'engines\.main\.model'"),
        ({"grid": {"engines.main.model": ["a"]}}, {"grid": {"engines.main.model": ["c"]}}, r"'engines\.main\.model'"),
        (MODELS, {"grid": {"seed": [3]}}, r"'engines\.main' is not the same in all cells"),
        (MODELS, None, r"'engines\.main' is not the same in all cells"),
        ({"cells": [{"seed": 1}]}, {"cells": [{"engines.more.use": "scripted"}]}, "'more' of cell"),
    ],
)
def test_an_engine_that_cannot_be_told_is_refused(tmp_path: Path, before: Any, now: Any, message: str) -> None:
    run = recorded(tmp_path, **({"sweep": before} if before else {}))
    with pytest.raises(JobError, match=message) as caught:
        replay(tmp_path, run, **({"sweep": now} if now else {}))
    assert caught.value.where.startswith(str(tmp_path / "job/job.yaml:"))


@pytest.mark.parametrize("record", [None, {"status": "engine"}])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, record: Any) -> None:
    run = RunFolder(tmp_path / "run")
    run.make()
    if record:
        run.put_json("run.json", record)
    with pytest.raises(JobError, match="there is no run here"):
        replay(tmp_path, run.path, sweep=MODELS)


def test_a_replay_engine_of_a_sweep_names_its_cell(tmp_path: Path) -> None:
    entry = {"use": "replay", "run": str(recorded(tmp_path, sweep=MODELS))}
    plan = small_plan(tmp_path / "job", engines={"main": entry | {"cell": "model=b,calls=2"}})
    assert models(plan) == {"": "b"}
    with pytest.raises(JobError, match="is not the same in all cells of the recorded run"):
        small_plan(tmp_path / "job", engines={"main": entry})
    with pytest.raises(JobError, match=r"'model=x' is no cell of the recorded run\."):
        small_plan(tmp_path / "job", engines={"main": entry | {"cell": "model=x"}})
