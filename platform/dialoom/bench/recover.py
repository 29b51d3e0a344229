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
from dialoom.errors import StorageError
from dialoom.outcome import Outcome
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.parts import decode

TARGETS = ("driver", "worker", "engine", "node", "all")
"""What one kill ends with signal 9: the driver, a worker actor, an engine actor, Ray's own process of the node, or
everything at once."""
FAULTS = "rename:0.02,answer:0.0005"
"""Deaths placed between writing and renaming a file, and between an answer and its record."""
IN_FLIGHT = 16
WORK_S_A_KILL = 4.0
"""So many seconds of work the job has for each kill: what was answered is not asked again, and it ends some time."""
CALLS_A_DIALOGUE = 14.0


@dataclass
class Recovery:
    """What a killed job came to. ``paid_again`` counts the answers that an engine gave more than once for one call,
    ``done_again`` finished units that workers committed once more: the traces have one row of them all the same."""

    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    dialogues: int = 0
    lost: int = 0
    twice: int = 0
    done_again: int = 0
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
        latency_s = WORK_S_A_KILL * kills * IN_FLIGHT / (CALLS_A_DIALOGUE * dialogues)
        job = job_file(folder, schema, data, latency_s=max(0.05, latency_s))
        run_whole(job, folder / "calm", folder / "calm.count")
        count = folder / "killed.count"
        run_killed(job, folder / "killed", random.Random(seed), kills, targets, faults, count, result)
        compare(folder / "calm", folder / "killed", result)
        result.paid_again = paid_again(count)
    result.seconds = time.perf_counter() - started
    return result


def job_file(folder: Path, schema: Path, data: Path, *, latency_s: float = 0.05) -> Path:
    """A job of two workers and two engine actors whose calls are counted; ``IN_FLIGHT`` calls at once."""
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
                "latency_s": latency_s,
                "in_actor": True,
                "replicas": 2,
                "concurrency": IN_FLIGHT // 2,
            }
        },
        "scores": ["effort"],
        "run": {"workers": 2, "commit_s": 0.5, "backoff_s": 0.05},
        "tracking": {"enabled": False},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def start(job: Path, root: Path, count: Path, faults: str = "", *, once: str = "") -> subprocess.Popen[bytes]:
    """``dialoom run`` as a process of its own; paid calls are counted in the file ``count``.

    ``faults`` and the folder ``once`` are those of :mod:`dialoom.faults`.
    """
    words = ["-m", "dialoom.cli.main", "run", str(job), "--set", f"run.root={root}", "--log-format", "quiet"]
    env = {"DIALOOM_BENCH_COUNT": str(count), "DIALOOM_FAULTS": faults, "DIALOOM_FAULTS_ONCE": once}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, *words], env=os.environ | env, stdout=quiet, stderr=quiet, start_new_session=True
    )


def run_whole(job: Path, root: Path, count: Path) -> None:
    """Run the job undisturbed. Raises RuntimeError where it does not end with status 0."""
    status = start(job, root, count).wait()
    if status != 0:
        raise RuntimeError(f"the job does not run undisturbed: exit status {status}")


def paid_again(count: Path) -> int:
    """Answers in a file of counted calls that were given before."""
    paid = count.read_bytes().split()
    return len(paid) - len(set(paid))


def run_killed(
    job: Path,
    root: Path,
    rng: random.Random,
    kills: int,
    targets: Sequence[str],
    faults: str,
    count: Path,
    result: Recovery,
) -> None:
    """Start the job as often as it takes; each start is killed at random until the kills are used up.

    Raises RuntimeError where it never ends.
    """
    left = kills
    while True:
        result.starts += 1
        process = start(job, root, count, faults if left else "")
        if rng.random() < 0.8:
            wait_for_calls(process, count)
        while process.poll() is None and left:
            time.sleep(rng.uniform(0.05, 1.5))
            target = rng.choice(list(targets))
            if process.poll() is None and kill(process.pid, target, rng):
                left -= 1
                result.kills[target] = result.kills.get(target, 0) + 1
                if target == "node":
                    break  # Ray ends with it, and the job in its own time: more kills would hit a corpse
        status = process.wait()
        if status == 0:
            return
        if result.starts > kills + 20:
            raise RuntimeError(f"the killed job does not end: exit status {status} at start {result.starts}")


def wait_for_calls(process: subprocess.Popen[bytes], count: Path) -> None:
    """Wait until this start sends calls, so that most kills fall into work and not into the start."""
    before = count.stat().st_size if count.exists() else 0
    while process.poll() is None and (count.stat().st_size if count.exists() else 0) == before:
        time.sleep(0.05)


def kill(driver: int, target: str, rng: random.Random) -> bool:
    """End the target with signal 9; whether there was one."""
    try:
        family = psutil.Process(driver).children(recursive=True)
    except psutil.Error:
        return False
    names = {"worker": "ray::Worker", "engine": "ray::EngineHost", "node": "raylet"}
    if target == "driver":
        chosen = [psutil.Process(driver)]
    elif target == "all":
        chosen = [psutil.Process(driver), *family]
    else:
        found = [p for p in family if _title(p).rpartition("/")[2].startswith(names[target])]
        chosen = [rng.choice(found)] if found else []
    for process in chosen:
        try:
            process.kill()
        except psutil.Error:
            continue
    return bool(chosen)


def _title(process: psutil.Process) -> str:
    try:
        return next(iter(process.cmdline()), "")
    except psutil.Error:
        return ""


def compare(calm: Path, killed: Path, result: Recovery) -> None:
    """Fill in what the job under the root ``killed`` came to, against the undisturbed one under ``calm``."""
    import polars as pl

    def table(root: Path, name: str) -> pl.DataFrame:
        return pl.read_parquet(root / "job" / "traces" / f"{name}.parquet")

    units = table(killed, "dialogues")["dialogue_id"]
    all_units = table(calm, "dialogues")["dialogue_id"]
    result.lost = len(set(all_units.to_list()) - set(units.to_list()))
    result.twice = len(units) - units.n_unique()
    result.done_again = done_again(RunFolder(killed / "job"))
    columns = ["dialogue_id", "turn", "state", "delta", "outcome"]
    order = ["dialogue_id", "turn"]
    a, b = (table(root, "turns").select(columns).sort(order) for root in (calm, killed))
    result.different = 0 if a.equals(b) else int((a != b).sum_horizontal().sum()) if a.shape == b.shape else -1
    result.calls = len(table(killed, "calls"))


def done_again(folder: RunFolder) -> int:
    """Finished rows in the parts of a run, without the first of each unit."""
    keys: list[str] = []
    for name in folder.names("parts", ".part"):
        try:
            rows = decode((folder.path / name).read_bytes(), ["dialogues"])["dialogues"].to_pylist()
        except StorageError:  # torn: no unit of it counts
            continue
        keys += [row["dialogue_id"] for row in rows if not Outcome(row["outcome"]).owed]
    return len(keys) - len(set(keys))
