"""``dialoom bench recover``: a job killed at random, again and again, against the same job left alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dialoom.bench.data import write_data

TARGETS = ("driver", "worker", "engine", "all")
"""What one kill ends with signal 9: the driver, a worker actor, an engine actor, or everything at once."""
FAULTS = "rename:0.02,answer:0.0005"
"""Deaths placed between writing and renaming a file, and between an answer and its record."""


@dataclass
class Recovery:
    """What a killed job came to. ``paid_again`` counts the answers that an engine gave more than once for one call."""

    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    dialogues: int = 0
    lost: int = 0
    twice: int = 0
    different: int = 0
    calls: int = 0
    paid_again: int = 0
    seconds: float = 0.0


def recover(
    *, kills: int = 40, dialogues: int = 120, seed: int = 0, targets: Sequence[str] = TARGETS, faults: str = FAULTS
) -> Recovery:
    """Run a scripted job under ``kills`` random kills and compare its traces with those of the same job undisturbed."""
    result = Recovery(seed=seed, dialogues=dialogues)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dialoom-bench-") as name:
        folder = Path(name)
        schema, data = write_data(folder, dialogues, seed=seed)
        job = _job(folder, schema, data)
        _run_whole(job, folder / "calm", _counted(folder / "calm.count"))
        count = folder / "killed.count"
        _run_killed(job, folder / "killed", random.Random(seed), kills, targets, faults, _counted(count), result)
        _compare(folder, result)
        paid = count.read_bytes().split()
        result.paid_again = len(paid) - len(set(paid))
    result.seconds = time.perf_counter() - started
    return result


def _job(folder: Path, schema: Path, data: Path) -> Path:
    import yaml

    job = {
        "name": "job",
        "data": {"reader": "chat", "paths": [str(data)]},
        "schema": {"path": str(schema)},
        "methods": ["tracker"],
        "engines": {
            "m": {
                "use": "scripted",
                "rule": "dialoom.bench.counting:answer",
                "latency_s": 0.05,
                "in_actor": True,
                "replicas": 2,
                "concurrency": 8,
            }
        },
        "scores": ["effort"],
        "run": {"workers": 2, "commit_s": 0.5, "backoff_s": 0.05},
        "tracking": {"enabled": False},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def _command(job: Path, root: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "dialoom.cli.main",
        "run",
        str(job),
        "--set",
        f"run.root={root}",
        "--log-format",
        "quiet",
    ]


def _counted(path: Path) -> dict[str, str]:
    return {"DIALOOM_BENCH_COUNT": str(path)}


def _run_whole(job: Path, root: Path, env: dict[str, str]) -> None:
    subprocess.run(_command(job, root), env=os.environ | env, check=True, stdout=subprocess.DEVNULL)


def _run_killed(
    job: Path,
    root: Path,
    rng: random.Random,
    kills: int,
    targets: Sequence[str],
    faults: str,
    env: dict[str, str],
    result: Recovery,
) -> None:
    """Start the job as often as it takes; each start is killed at random until the kills are used up."""
    left = kills
    while True:
        result.starts += 1
        process = subprocess.Popen(
            _command(job, root),
            env=os.environ | env | ({"DIALOOM_FAULTS": faults} if left else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if rng.random() < 0.8:
            _wait_for_calls(process, Path(env["DIALOOM_BENCH_COUNT"]))
        while process.poll() is None and left:
            time.sleep(rng.uniform(0.05, 1.5))
            target = rng.choice(list(targets))
            if process.poll() is None and _kill(process.pid, target, rng):
                left -= 1
                result.kills[target] = result.kills.get(target, 0) + 1
        status = process.wait()
        if status == 0:
            return
        if result.starts > kills + 20:
            raise RuntimeError(f"the killed job does not end: exit status {status} at start {result.starts}")


def _wait_for_calls(process: subprocess.Popen[bytes], count: Path) -> None:
    """Until this start sends calls, so that most kills fall into work and not into the start."""
    before = count.stat().st_size if count.exists() else 0
    while process.poll() is None and (count.stat().st_size if count.exists() else 0) == before:
        time.sleep(0.05)


def _kill(driver: int, target: str, rng: random.Random) -> bool:
    """End the target with signal 9; whether there was one."""
    try:
        family = psutil.Process(driver).children(recursive=True)
    except psutil.Error:
        return False
    names = {"worker": "ray::Worker", "engine": "ray::EngineHost"}
    if target == "driver":
        chosen = [psutil.Process(driver)]
    elif target == "all":
        chosen = [psutil.Process(driver), *family]
    else:
        found = [p for p in family if _title(p).startswith(names[target])]
        chosen = [rng.choice(found)] if found else []
    for process in chosen:
        try:
            process.kill()
        except psutil.Error:
            continue
    return bool(chosen)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _compare(folder: Path, result: Recovery) -> None:
    import polars as pl

    def table(run: str, name: str) -> pl.DataFrame:
        return pl.read_parquet(folder / run / "job" / "traces" / f"{name}.parquet")

    units = table("killed", "dialogues")["dialogue_id"]
    calm = table("calm", "dialogues")["dialogue_id"]
    result.lost = len(set(calm.to_list()) - set(units.to_list()))
    result.twice = len(units) - units.n_unique()
    columns = ["dialogue_id", "turn", "state", "delta", "outcome"]
    order = ["dialogue_id", "turn"]
    a, b = (table(run, "turns").select(columns).sort(order) for run in ("calm", "killed"))
    result.different = 0 if a.equals(b) else int((a != b).sum_horizontal().sum()) if a.shape == b.shape else -1
    result.calls = len(table("killed", "calls"))
