"""Every job file of ``jobs/`` runs to its end on a few dialogues of its data, a scripted engine in place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dialoom.run import run
from support.jobs import plan_of
from support.results import rows
from support.shared import ROOT, shared_path

pytestmark = [pytest.mark.shared, pytest.mark.timeout(300), pytest.mark.usefixtures("ray")]

JOBS = sorted(p.name for p in (ROOT / "jobs").glob("*.yaml"))
RULE = "dialoom.methods.tracker._rule:answer"
KEPT = ("model", "price")
DIALOGUES = 3


def scripted(engine: dict[str, Any]) -> dict[str, Any]:
    return {"use": "scripted", "rule": RULE, **{k: v for k, v in engine.items() if k in KEPT}}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_library_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGD_DIR", str(shared_path("sgd")))
    monkeypatch.setenv("MULTIWOZ_TEST", str(shared_path("multiwoz", "mwz21", "test")))
    job = yaml.safe_load((ROOT / "jobs" / name).read_text(encoding="utf-8"))
    job["engines"] = {engine: scripted(settings) for engine, settings in job["engines"].items()}
    job["data"] |= {"limit": DIALOGUES}
    job["run"] = {**job.get("run", {}), "root": str(tmp_path)}
    job["tracking"] = {"enabled": False}
    (tmp_path / "jobs").mkdir()
    for folder in ("jobs/data", "schemas"):  # paths in the file are relative to it
        (tmp_path / folder).symlink_to(ROOT / folder)
    path = tmp_path / "jobs" / name
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    plan = plan_of(path)
    result = run(plan)
    assert (result.error, result.status, result.notes) == (None, 0, [])
    units = rows(result)
    assert len(units) == DIALOGUES * len(plan.variants) * plan.options.trials
    assert {(u["method"], u["cell"]) for u in units} == {(v.method, v.cell) for v in plan.variants}
    assert all(u["n_calls"] for u in units)
    assert result.flat
