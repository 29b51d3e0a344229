"""Sweeps as plans: cells, names, shared engines, stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dialoom.errors import JobError
from dialoom.job import SweepConfig, load_job
from dialoom.runtime.plan import Plan, digest_of, make_plan
from dialoom.runtime.sweep import cells_of, stages, with_kept_names
from dialoom.yaml_file import YamlFile

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


def resolved(plan: Plan, folder: Path) -> Plan:
    """The plan of the resolved job of ``plan``, as its run folder has it, read in another folder."""
    folder.mkdir(exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(dict(plan.job), sort_keys=False), encoding="utf-8")
    return make_plan(*load_job(path))


def cell_digests(plan: Plan) -> dict[str, str]:
    return {name: digest_of(identity) for name, identity in plan.identity["cells"].items()}


GRID_FIELDS: dict[str, list[Any]] = {
    "methods.0.k_max": [2, 3, 4],
    "methods.tracker.protocol": ["text", "json"],
    "methods.0": ["tracker", {"use": "tracker", "k_max": 5}, {"use": "srp"}],
    "methods": [["srp"], [{"use": "tracker", "name": "again"}]],
    "engines.m.model": ["a", "b"],
    "engines.m": [{"use": "scripted", "answers": "./answers.jsonl"}, {"use": "openai", "model": "x"}],
    "engines.m.answers": ["answers.jsonl"],
    "engines": [{"m": {"use": "scripted", "rule": RULE, "model": "c"}}],
    "seed": [0, 7],
}


@given(
    st.dictionaries(st.sampled_from(sorted(GRID_FIELDS)), st.integers(1, 2), max_size=2),
    st.lists(st.dictionaries(st.sampled_from(sorted(GRID_FIELDS)), st.integers(0, 2), max_size=3), max_size=3),
)
@settings(max_examples=40)
def test_the_resolved_job_plans_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, grid: dict[str, int], listed: list[dict[str, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "answers.jsonl").write_text("", encoding="utf-8")
    cells = [{f: GRID_FIELDS[f][i % len(GRID_FIELDS[f])] for f, i in cell.items()} for cell in listed]
    sweep = {"grid": {f: GRID_FIELDS[f][:n] for f, n in grid.items()}, "cells": cells}
    try:
        plan = plan_of(folder, sweep=sweep)
    except JobError:
        assume(False)
    again = resolved(plan, folder / "elsewhere")
    assert cell_digests(again) == cell_digests(plan)
    assert again.digest == plan.digest
    assert again.variants == plan.variants
    assert again.engines == plan.engines
    assert again.job == plan.job


def test_the_resolved_job_holds_the_base_as_it_was(tmp_path: Path) -> None:
    """A cell that leaves a field alone has the job's own value of it, not that of the first cell."""
    plan = plan_of(tmp_path, sweep={"cells": [{"name": "four", "methods.0.k_max": 4, "seed": 3}, {"name": "base"}]})
    again = resolved(plan, tmp_path / "elsewhere")
    assert {v.cell: (v.settings["k_max"], v.seed) for v in again.variants} == {
        v.cell: (v.settings["k_max"], v.seed) for v in plan.variants
    }
    assert again.variants[0].settings["k_max"] != again.variants[1].settings["k_max"]


def test_engines_keep_their_names_in_a_folder_whose_cells_change(tmp_path: Path) -> None:
    a, b, c = ({"name": n, "engines.m.model": n} for n in "abc")
    recorded = {n: {"use": s.use, **s.settings} for n, s in plan_of(tmp_path, sweep={"cells": [a, b]}).engines.items()}
    plan = with_kept_names(plan_of(tmp_path, sweep={"cells": [c, b]}), recorded)
    assert {v.cell: v.roles["main"] for v in plan.variants} == {"b": "m-2", "c": "m-3"}
    assert {name: spec.settings["model"] for name, spec in plan.engines.items()} == {"m-2": "b", "m-3": "c"}


@given(st.lists(st.sampled_from(["a" * 60, "a" * 70, "a" * 58 + "-1", "a b", "a-b", "a-b-2", ""]), max_size=6))
def test_every_cell_has_a_name_of_its_own(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    sweep = SweepConfig(cells=tuple({"name": n} for n in names))
    file = YamlFile(tmp_path_factory.getbasetemp() / "job.yaml", {}, {})
    found = [name for name, _ in cells_of(sweep, file)]
    assert len(set(found)) == len(names)
    assert all(len(name) <= 60 for name in found)
    assert [n for n, _ in cells_of(SweepConfig(cells=tuple({"name": n} for n in found)), file)] == found


def test_two_endpoints_taken_for_one_are_said(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [{"name": n, "engines.m.base_url": f"http://{n}:1/v1"} for n in "ab"]
    engines = {"m": {"use": "openai", "model": "x"}}
    (note,) = plan_of(tmp_path, engines=engines, sweep={"cells": cells}).notes
    assert "'m' and 'm-2'" in note
    assert "'revision'" in note
    told_apart = [cell | {"engines.m.revision": cell["name"]} for cell in cells]
    assert plan_of(tmp_path, engines=engines, sweep={"cells": told_apart}).notes == []
