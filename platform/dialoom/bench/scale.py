"""``dialoom bench scale``: what the driver needs for many dialogues: memory, and processor time a dialogue."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from dialoom.bench.data import write_data
from dialoom.runtime.progress import Progress


@dataclass(frozen=True)
class Scale:
    """One size. Memory is the driver process's resident set, the most that was seen while it ran."""

    dialogues: int
    driver_mb: float
    driver_cpu_ms_a_dialogue: float
    seconds: float
    dialogues_per_s: float


def scale(sizes: Sequence[int] = (1_000, 10_000, 100_000)) -> list[Scale]:
    """Run a scripted job without latency over each size, each in a process of its own, smallest first."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    results = []
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            results.append(pool.submit(measure, size).result())
    return results


def measure(n_dialogues: int) -> Scale:
    """One size, in this process."""
    import yaml

    from dialoom import run
    from dialoom.job import load_job
    from dialoom.runtime.plan import make_plan

    with tempfile.TemporaryDirectory(prefix="dialoom-bench-") as name:
        folder = Path(name)
        schema, data = write_data(folder, n_dialogues, turns=(1, 1))
        job = {
            "name": "scale",
            "data": {"reader": "chat", "paths": [str(data)]},
            "schema": {"path": str(schema)},
            "methods": ["tracker"],
            "engines": {"m": {"use": "scripted", "rule": "dialoom.methods.tracker._rule:answer"}},
            "scores": ["effort"],
            "run": {"root": str(folder), "workers": 1},
            "tracking": {"enabled": False},
        }
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(job), encoding="utf-8")
        plan = make_plan(*load_job(path))
        watch = _Watch()
        started = time.perf_counter()
        result = run.run(plan, observe=watch)
        seconds = time.perf_counter() - started
    if not result.complete:
        raise RuntimeError(f"the bench job did not end as it should: {result.ending}, {result.error}")
    return Scale(n_dialogues, watch.most_mb, 1000 * watch.cpu_s / n_dialogues, seconds, n_dialogues / seconds)


class _Watch:
    """Memory and processor time of this process, read with each progress."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before_s = 0.0
        self.most_mb = 0.0
        self.cpu_s = 0.0

    def __call__(self, progress: Progress) -> None:
        self.most_mb = max(self.most_mb, self._process.memory_info().rss / 1e6)
        times = self._process.cpu_times()
        if progress.phase == "running":
            self._before_s = self._before_s or times.user + times.system
            self.cpu_s = times.user + times.system - self._before_s
