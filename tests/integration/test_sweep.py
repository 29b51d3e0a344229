"""A sweep through the whole runtime: shared calls, interrupted twice, one row a unit and cell, MLflow child runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CELLS = 12


def sweep_job(folder: Path) -> Path:
    job: dict[str, Any] = {
        "name": "sweep",
        "data": {"reader": "chat", "paths": str(ROOT / "jobs/data/sample.jsonl")},
        "schema": {"path": str(ROOT / "schemas/sample.yaml")},
        "methods": ["tracker"],
        "engines": {
            "m": {"use": "scripted", "rule": "dialoom.bench.counting:answer", "latency_s": 0.05, "concurrency": 8}
        },
        "sweep": {
            "grid": {
                "methods.0.k_max": [2, 4, 6],
                "methods.0.protocol": ["text", "json"],
                "methods.0.validator": [True, False],
            }
        },
        "scores": ["joint_goal", "effort"],
        "run": {"commit_s": 0.3},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def start(job: Path, root: Path, count: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "dialoom.cli.main", "run", str(job), "--set", f"run.root={root}"]
    env = {**os.environ, "DIALOOM_BENCH_COUNT": str(count), "MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*words, "--log-format", "quiet"], env=env, stdout=quiet, stderr=quiet)


def answered(count: Path) -> int:
    return count.stat().st_size // 33 if count.exists() else 0


def kill_after(process: subprocess.Popen[bytes], count: Path, calls: int) -> None:
    """Kill the driver as soon as so many calls were answered, counted over all starts."""
    poll = psutil.Process(process.pid)
    while process.poll() is None and answered(count) < calls:
        poll.cpu_percent(interval=0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def states(root: Path) -> pl.DataFrame:
    frame = pl.read_parquet(root / "sweep/traces/turns.parquet")
    return frame.select("dialogue_id", "cell", "turn", "state", "outcome").sort("dialogue_id", "cell", "turn")


@pytest.mark.timeout(300)
def test_a_sweep_killed_twice_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    job = sweep_job(tmp_path)
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    assert start(job, calm, tmp_path / "calm.count").wait() == 0
    whole = answered(tmp_path / "calm.count")
    count = tmp_path / "killed.count"
    for share in (0.3, 0.6):
        kill_after(start(job, killed, count), count, int(whole * share))
    assert start(job, killed, count).wait() == 0
    units = pl.read_parquet(killed / "sweep/traces/dialogues.parquet")
    assert units["cell"].n_unique() == CELLS
    assert len(units) == CELLS * 13 == units.select("dialogue_id", "cell").n_unique()
    assert states(killed).equals(states(calm))
    client = MlflowClient(f"sqlite:///{killed}/mlflow.db")
    experiment = client.get_experiment_by_name("dialoom")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    parents = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    children = [r for r in runs if "mlflow.parentRunId" in r.data.tags]
    assert len(parents) == 1
    assert len(children) == CELLS
    assert {r.info.status for r in runs} == {"FINISHED"}
    assert all("joint_goal/joint_goal_accuracy" in r.data.metrics for r in children)
    assert (killed / "sweep/pareto.png").read_bytes().startswith(b"\x89PNG")
    drawn = {a.path for a in client.list_artifacts(parents[0].info.run_id)}
    assert {"pareto.png", "pareto.html", "cells.md"} <= drawn
    # Six cells differ in their bound alone, which no valid answer reaches: their calls are asked for once.
    calls = pl.read_parquet(calm / "sweep/traces/calls.parquet")
    assert calls.filter(~pl.col("replayed"))["digest"].n_unique() == calls["digest"].n_unique()
    assert calls["replayed"].sum() >= len(calls) // 2
