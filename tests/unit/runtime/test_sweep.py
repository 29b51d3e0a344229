"""Sweeps as plans: cells, names, shared engines, stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dialoom.errors import JobError
from dialoom.job import load_job
from dialoom.runtime.plan import Plan, make_plan
from dialoom.runtime.sweep import stages

ROOT = Path(__file__).parents[3]
RULE = "dialoom.methods.tracker._rule:answer"


def plan_of(folder: Path, **fields: Any) -> Plan:
    job = {
        "name": "sweep",
        "data": {"reader": "chat", "paths": str(ROOT / "jobs/data/sample.jsonl")},
        "schema": {"path": str(ROOT / "schemas/sample.yaml")},
        "methods": ["tracker"],
        "engines": {"m": {"use": "scripted", "rule": RULE}},
        **fields,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return make_plan(*load_job(path))


def test_a_grid_is_every_combination_with_telling_names(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, sweep={"grid": {"methods.0.k_max": [2, 4], "methods.tracker.protocol": ["text", "json"]}})
    assert [v.cell for v in plan.variants] == [
        "k_max=2,protocol=text",
        "k_max=2,protocol=json",
        "k_max=4,protocol=text",
        "k_max=4,protocol=json",
    ]
    assert [v.settings["k_max"] for v in plan.variants] == [2, 2, 4, 4]
    assert len(plan.units("d")) == 4
    assert set(plan.engines) == {"m"}


def test_listed_cells_have_their_own_names_and_engines_are_shared_by_settings(tmp_path: Path) -> None:
    cells = [
        {"name": "base"},
        {"name": "slow", "engines.m.latency_s": 0.5},
        {"name": "slow too", "engines.m.latency_s": 0.5, "methods.0.k_max": 3},
        {"name": "seed", "seed": 7},
    ]
    plan = plan_of(tmp_path, sweep={"cells": cells})
    assert [v.cell for v in plan.variants] == ["base", "slow", "slow-too", "seed"]
    assert [v.roles["main"] for v in plan.variants] == ["m", "m-2", "m-2", "m"]
    assert [v.seed for v in plan.variants] == [0, 0, 0, 7]
    assert plan.engines["m-2"].settings["latency_s"] == 0.5


def test_the_digest_tells_sweeps_apart_and_a_resolved_sweep_is_the_same_one(tmp_path: Path) -> None:
    one = plan_of(tmp_path, sweep={"grid": {"methods.0.k_max": [2, 4]}})
    other = plan_of(tmp_path, sweep={"grid": {"methods.0.k_max": [2, 5]}})
    assert one.digest != other.digest
    again = plan_of(tmp_path, sweep=one.job["sweep"])
    assert again.digest == one.digest


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"grid": {"data.limit": [1, 2]}}, "cannot change 'data.limit'"),
        ({"grid": {"methods.9.k_max": [1]}}, "names no item '9'"),
        ({"grid": {"methods.trakcer.k_max": [1]}}, "Did you mean 'tracker'"),
        ({"grid": {"methods.0.k_maxx": [1]}}, "k_maxx"),
        ({"grid": {"methods.0.k_max": ["many"]}}, "k_max"),
        ({}, "no cell"),
        ({"grids": {}}, "Did you mean 'grid'"),
    ],
)
def test_a_wrong_sweep_is_an_error_with_its_place(tmp_path: Path, sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=r"job\.yaml:\d+") as caught:
        plan_of(tmp_path, sweep=sweep)
    assert message in str(caught.value)


def test_models_on_one_processor_run_one_after_another(tmp_path: Path) -> None:
    cells = [{"name": n, "engines.m.model": n} for n in ("a", "b", "a again")]
    cells[2]["engines.m.model"] = "a"
    plan = plan_of(tmp_path, sweep={"cells": cells})
    heavy = {n: replace(s, hosted=True, heavy=True) for n, s in plan.engines.items()}
    parts = stages(replace(plan, engines=heavy), gpus=0)
    assert [[v.cell for v in p.variants] for p in parts] == [["a", "a-again"], ["b"]]
    assert [list(p.engines) for p in parts] == [["m"], ["m-2"]]


def test_engines_share_a_stage_while_their_gpus_last(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, sweep={"cells": [{"name": n, "engines.m.model": n} for n in "abc"]})
    gpu = {n: replace(s, hosted=True, heavy=True, resources={"num_gpus": 2.0}) for n, s in plan.engines.items()}
    sizes = {gpus: [len(p.variants) for p in stages(replace(plan, engines=gpu), gpus)] for gpus in (2, 4, 8)}
    assert sizes == {2: [1, 1, 1], 4: [2, 1], 8: [3]}
