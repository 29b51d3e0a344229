"""``dialoom bench overhead``: what share of bare asyncio's speed a scripted job reaches, and what a call costs."""

from __future__ import annotations

import asyncio
import heapq
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from dialoom.bench.data import write_data
from dialoom.runtime.progress import Progress


@dataclass(frozen=True)
class Case:
    """One setting: seconds a call, calls in flight over all workers, where the engine lives."""

    name: str
    latency_s: float
    in_flight: int
    workers: int
    in_actor: bool
    dialogues: int


CASES = (
    Case("100 ms, 64 in flight, engine actor", 0.1, 64, 1, True, 700),
    Case("100 ms, 128 in flight, two workers", 0.1, 128, 2, False, 1400),
    Case("20 ms, 32 in flight, one worker", 0.02, 32, 1, False, 1400),
)


@dataclass(frozen=True)
class Overhead:
    """What a case gave. Seconds run from the first call sent to the last one answered."""

    case: str
    calls: int
    bare_s: float
    job_s: float
    share_of_bare: float
    cpu_ms_a_call: float
    to_first_call_s: float


def overhead(cases: Sequence[Case] = CASES, *, method: str = "tracker", scale: float = 1.0) -> list[Overhead]:
    """Run every case: the job, then the same calls in bare asyncio, in this process."""
    return [_measure(case, method, max(8, int(case.dialogues * scale))) for case in cases]


def _measure(case: Case, method: str, n_dialogues: int) -> Overhead:
    with tempfile.TemporaryDirectory(prefix="dialoom-bench-") as name:
        folder = Path(name)
        schema, data = write_data(folder, n_dialogues)
        meter = CpuMeter()
        started = time.time()
        _run_job(case, method, folder, schema, data, meter)
        sent, ended, chains = _times(folder / "bench")
    bare_s = asyncio.run(_bare(chains, case.latency_s, case.in_flight))
    calls = sum(chains)
    return Overhead(
        case.name, calls, bare_s, ended - sent, bare_s / (ended - sent), 1000 * meter.seconds_a_call, sent - started
    )


def _run_job(case: Case, method: str, folder: Path, schema: Path, data: Path, meter: CpuMeter) -> None:
    import yaml

    from dialoom import run
    from dialoom.job import load_job
    from dialoom.runtime.plan import make_plan

    per_engine = case.in_flight
    job = {
        "name": "bench",
        "data": {"reader": "chat", "paths": [str(data)]},
        "schema": {"path": str(schema)},
        "methods": [method],
        "engines": {
            "m": {
                "use": "scripted",
                "rule": "dialoom.methods.tracker._rule:answer",
                "latency_s": case.latency_s,
                "in_actor": case.in_actor,
                "concurrency": per_engine,
            }
        },
        "scores": ["effort"],
        "run": {"root": str(folder), "workers": case.workers},
        "tracking": {"enabled": False},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    plan = make_plan(*load_job(path))
    result = run.run(plan, observe=meter)
    if not result.complete:
        raise RuntimeError(f"the bench job did not end as it should: {result.ending}, {result.error}")


def _times(run_folder: Path) -> tuple[float, float, list[int]]:
    """First call sent, last call answered (epoch seconds), calls of each dialogue."""
    import polars as pl

    calls = pl.read_parquet(
        run_folder / "traces" / "calls.parquet", columns=["dialogue_id", "sent_at", "latency_s", "replayed"]
    ).filter(~pl.col("replayed"))
    sent = calls["sent_at"].dt.epoch("us").to_numpy() / 1e6
    ended = sent + calls["latency_s"].to_numpy()
    return float(sent.min()), float(ended.max()), list(Counter(calls["dialogue_id"].to_list()).values())


async def _bare(chains: list[int], latency_s: float, in_flight: int) -> float:
    """Seconds that bare asyncio needs: each chain's calls one after the other, longest chain first."""
    queue = [-n for n in chains]
    heapq.heapify(queue)

    async def lane() -> None:
        while queue:
            for _ in range(-heapq.heappop(queue)):
                await asyncio.sleep(latency_s)

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return time.perf_counter() - started


class CpuMeter:
    """Processor seconds of this process and all its children from the first calls reported to the last.

    Called with the progress about four times a second; a process that ends in between loses a quarter of a second.
    Calls are counted over the same span.
    """

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._now: dict[int, float] = {}
        self._calls_before = 0
        self._calls = 0

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "running" or not progress.counts["calls"]:
            return
        usage = self._usage()
        if not self._now:
            self._before, self._calls_before = usage, int(progress.counts["calls"])
        self._now |= usage
        self._calls = int(progress.counts["calls"])

    @property
    def seconds_a_call(self) -> float:
        """Processor seconds a call; processes that began in between count from their start."""
        spent = sum(s - self._before.get(pid, 0.0) for pid, s in self._now.items())
        return spent / max(1, self._calls - self._calls_before)

    @staticmethod
    def _usage() -> dict[int, float]:
        me = psutil.Process()
        found = {}
        for process in [me, *me.children(recursive=True)]:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            found[process.pid] = times.user + times.system
        return found


def records(results: Sequence[Overhead]) -> list[dict[str, object]]:
    """Plain data for ``--json``."""
    return [asdict(r) for r in results]
