"""Every job file in ``jobs/`` is a valid plan for this machine's data, whatever its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.job import load_job
from dialoom.runtime.plan import make_plan
from support.shared import ROOT, shared_path

JOBS = sorted(p.name for p in (ROOT / "jobs").glob("*.yaml"))


@pytest.mark.shared
@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_library_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGD_DIR", str(shared_path("sgd")))
    monkeypatch.setenv("MULTIWOZ_TEST", str(shared_path("multiwoz", "mwz21", "test")))
    plan = make_plan(*load_job(ROOT / "jobs" / name))
    assert plan.variants
    assert all(v.roles for v in plan.variants)
    assert plan.workers >= 1


def test_every_job_says_in_its_first_line_what_it_is_for() -> None:
    assert all(Path(ROOT / "jobs" / n).read_text(encoding="utf-8").startswith("# ") for n in JOBS)
