"""Jobs killed with signal 9 at random times and at chosen places, against the same job left alone.

``DIALOOM_KILL_SEED`` repeats a seed; each assertion tells the one it was made with. ``dialoom bench recover`` does the
same with forty kills.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
import pytest

from dialoom.bench import recover
from dialoom.bench.data import write_data
from dialoom.job import load_job
from dialoom.run import RunResult, run
from dialoom.runtime import parts
from dialoom.runtime.calllog import SUFFIX, scan
from dialoom.runtime.cluster import cluster
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import make_plan
from dialoom.runtime.progress import Progress

pytestmark = pytest.mark.timeout(400)  # Ray's processes are slow to start on a busy machine

SEED = int(os.environ.get("DIALOOM_KILL_SEED") or random.SystemRandom().randrange(10**6))
IN_FLIGHT = 16


@dataclass(frozen=True)
class Calm:
    """A job and its undisturbed run, to compare with."""

    job: Path
    root: Path


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where calls are counted that runs of this process pay."""
    return tmp_path_factory.mktemp("count") / "here"


@pytest.fixture(scope="module", autouse=True)
def ray(count: Path) -> Iterator[None]:
    """One Ray for the runs of this process; killed jobs have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIALOOM_BENCH_COUNT", str(count))
        with cluster():
            yield


def run_here(job: Path, root: Path, **overrides: object) -> RunResult:
    """Run the job in this process's Ray, or go on with it."""
    return run(make_plan(*load_job(job, {"run.root": str(root), **overrides})))


def made(folder: Path, dialogues: int, turns: tuple[int, int], latency_s: float) -> Calm:
    schema, data = write_data(folder, dialogues, turns=turns, seed=3)
    job = recover.job_file(folder, schema, data, latency_s=latency_s)
    assert run_here(job, folder / "calm").status == 0
    return Calm(job, folder / "calm")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Thirty short dialogues, quick calls."""
    return made(tmp_path_factory.mktemp("small"), 30, (1, 3), 0.02)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Calls enough for about twelve seconds."""
    return made(tmp_path_factory.mktemp("long"), 60, (3, 6), 0.25)


def assert_same(calm: Calm, root: Path) -> recover.Recovery:
    """Nothing lost, nothing twice, states equal."""
    found = recover.Recovery(SEED)
    recover.compare(calm.root, root, found)
    told = f"DIALOOM_KILL_SEED={SEED}: {found}"
    assert (found.lost, found.twice, found.different) == (0, 0, 0), told
    for table in ("turns", "calls"):
        path = f"job/traces/{table}.parquet"
        keys = ["dialogue_id", "turn"] + (["call"] if table == "calls" else [])
        a, b = (pl.read_parquet(place / path, columns=keys).sort(keys) for place in (calm.root, root))
        assert a.equals(b), f"{table} differ, {told}"
    return found


def assert_replays(calm: Calm, root: Path) -> None:
    """Without an engine: whatever was done has its answers in the call log, when and however a process ended."""
    recorded = {"m": {"use": "replay", "run": str(root / "job")}}
    assert run_here(calm.job, root / "replayed", engines=recorded).status == 0
    assert_same(calm, root / "replayed")


def assert_no_actor_left(session: int) -> None:
    """Workers and engines of a killed job end on their own; Ray's own agents take a minute longer."""
    until = time.monotonic() + 30
    while left := [p for p in psutil.process_iter() if is_actor(p, session)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.1)


def is_actor(process: psutil.Process, session: int) -> bool:
    try:
        title = next(iter(process.cmdline()), "")
        return os.getsid(process.pid) == session and title.startswith(("ray::Worker", "ray::EngineHost"))
    except (ProcessLookupError, psutil.Error):
        return False


def ended(process: subprocess.Popen[bytes], timeout_s: float = 120.0) -> int:
    """The exit status of a job that is left to itself."""
    try:
        return process.wait(timeout_s)
    finally:
        if process.poll() is None:
            recover.kill(process.pid, "all", random.Random(0))


def test_kills_at_random_times(long: Calm, tmp_path: Path) -> None:
    """Driver, workers, engines, everything, and deaths between write and rename and between answer and record."""
    rng = random.Random(SEED)
    result = recover.Recovery(SEED)
    targets = ("driver", "worker", "engine", "all")
    recover.run_killed(long.job, tmp_path, rng, 4, targets, recover.FAULTS, tmp_path / "count", result)
    assert sum(result.kills.values()) >= 2, "the job was over before it was killed"
    assert_same(long, tmp_path)
    assert_replays(long, tmp_path)


def test_a_lost_engine_does_not_end_the_run(small: Calm, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    process = recover.start(small.job, tmp_path, tmp_path / "count")
    recover.wait_for_calls(process, tmp_path / "count")
    time.sleep(rng.uniform(0.0, 0.3))
    assert recover.kill(process.pid, "engine", rng)
    assert ended(process) == 0, f"DIALOOM_KILL_SEED={SEED}"
    assert_same(small, tmp_path)


def test_a_lost_node_ends_the_run_in_time_and_it_goes_on(small: Calm, tmp_path: Path) -> None:
    process = recover.start(small.job, tmp_path, tmp_path / "count")
    recover.wait_for_calls(process, tmp_path / "count")
    assert recover.kill(process.pid, "node", random.Random(SEED))
    assert ended(process) in (0, 4)
    assert_no_actor_left(process.pid)
    assert run_here(small.job, tmp_path).status == 0
    assert_same(small, tmp_path)


def test_a_worker_that_is_lost_with_its_node_is_not_waited_for(small: Calm, tmp_path: Path) -> None:
    """Nothing can start any more then, and Ray does not say so."""
    process = recover.start(small.job, tmp_path, tmp_path / "count")
    recover.wait_for_calls(process, tmp_path / "count")
    rng = random.Random(SEED)
    assert recover.kill(process.pid, "node", rng)
    recover.kill(process.pid, "worker", rng)
    assert ended(process) in (0, 4)
    assert_no_actor_left(process.pid)
    assert run_here(small.job, tmp_path).status == 0
    assert_same(small, tmp_path)


def test_processes_of_a_killed_driver_end_and_give_the_folder_free(small: Calm, tmp_path: Path) -> None:
    process = recover.start(small.job, tmp_path, tmp_path / "count")
    recover.wait_for_calls(process, tmp_path / "count")
    assert recover.kill(process.pid, "driver", random.Random(SEED))
    process.wait()
    assert run_here(small.job, tmp_path).status == 0
    assert_same(small, tmp_path)
    assert_no_actor_left(process.pid)


PLACES = {
    "a part, before its rename": "rename.parts",
    "a part, after its rename": "committed",
    "the call log, half a record": "append",
    "an answer, before its record": "answer",
    "one table of the traces": "traces.turns",
    "scores": "rename.scores.json",
    "run.json": "rename.run.json",
    "the resolved job": "rename.job.yaml",
    "the number of a start": "epoch",
}


@pytest.mark.parametrize("place", PLACES)
def test_death_while_writing(small: Calm, tmp_path: Path, place: str) -> None:
    """Each writer of a run folder dies in the middle, at least once; the job then goes on where it was."""
    died = tmp_path / "died"
    died.mkdir()
    process = recover.start(small.job, tmp_path, tmp_path / "count", f"{PLACES[place]}:1", once=str(died))
    status = ended(process)
    assert [path.name for path in died.iterdir()] == [PLACES[place]], "nothing died"
    replaced = PLACES[place] in ("rename.parts", "committed", "append", "answer", "traces.turns", "rename.scores.json")
    assert (status == 0) == replaced, "a lost worker or task is replaced, a lost driver is not"
    again = run_here(small.job, tmp_path)
    assert again.status == 0
    assert_same(small, tmp_path)
    folder = RunFolder(tmp_path / "job")
    record = folder.read_json("run.json") or {}
    assert record["status"] == "complete"
    assert (folder.read_json("scores.json") or {})["groups"]
    assert_replays(small, tmp_path)
    assert not list(folder.path.rglob("*.tmp")), "half-written files of a dead process are cleared away"


@pytest.mark.parametrize("place", ["traces.turns", "rename.scores.json"])
def test_a_task_that_dies_at_each_try_ends_the_run_and_loses_nothing(small: Calm, tmp_path: Path, place: str) -> None:
    process = recover.start(small.job, tmp_path, tmp_path / "count", f"{place}:1")
    assert ended(process) != 0
    assert run_here(small.job, tmp_path).status == 0
    assert_same(small, tmp_path)


def test_what_is_paid_again_after_a_kill_of_everything(long: Calm, count: Path, tmp_path: Path) -> None:
    """At most the calls in flight, and those of the last five seconds."""
    rng = random.Random(SEED)
    paid_file = tmp_path / "count"
    process = recover.start(long.job, tmp_path, paid_file)
    recover.wait_for_calls(process, paid_file)
    until = time.monotonic() + rng.uniform(6.5, 8.0)
    history: list[tuple[float, int]] = []
    while time.monotonic() < until:
        history.append((time.monotonic(), len(paid_file.read_bytes().split())))
        time.sleep(0.02)
    assert recover.kill(process.pid, "all", rng)
    process.wait()
    before = paid_file.read_bytes().split()
    of_last_segment = len(before) - next(n for at, n in history if at >= history[-1][0] - 5.0)
    assert len(before) > of_last_segment + 2 * IN_FLIGHT, "the kill came too early to tell"

    count.unlink(missing_ok=True)
    assert run_here(long.job, tmp_path).status == 0
    assert_same(long, tmp_path)
    again = len(set(before) & set(count.read_bytes().split()))
    told = f"{again} of {len(before)} calls were paid again, DIALOOM_KILL_SEED={SEED}"
    assert again <= IN_FLIGHT + of_last_segment, told
    assert again < len(before) // 2, told


def test_a_lost_worker_costs_what_was_in_flight(long: Calm, tmp_path: Path) -> None:
    """Its dialogues go on elsewhere with the answers they had: those of its call log are not paid again."""
    rng = random.Random(SEED)
    paid_file = tmp_path / "count"
    process = recover.start(long.job, tmp_path, paid_file)
    recover.wait_for_calls(process, paid_file)
    time.sleep(rng.uniform(4.0, 5.0))
    assert recover.kill(process.pid, "worker", rng)
    assert ended(process) == 0
    assert_same(long, tmp_path)
    again = recover.paid_again(paid_file)
    # Half of 64 calls a second are the lost worker's; its log was written a second ago at most, a busy machine apart.
    assert again <= IN_FLIGHT + 3 * 32, f"{again} calls were paid again, DIALOOM_KILL_SEED={SEED}"


def test_a_slow_disk_holds_up_no_call(long: Calm, tmp_path: Path) -> None:
    """Every part takes two seconds to write and the call log half a second for 4 KiB: slower than answers come."""
    part_s = 2.0
    process = recover.start(long.job, tmp_path, tmp_path / "count", f"rename.parts:1:{part_s},append:1:0.5")
    assert ended(process) == 0
    assert_same(long, tmp_path)
    assert recover.paid_again(tmp_path / "count") == 0
    sent = pl.read_parquet(tmp_path / "job/traces/calls.parquet")["sent_at"].sort()
    longest_s = sent.diff().dt.total_microseconds().cast(pl.Float64).to_numpy()[1:].max() / 1e6
    assert longest_s < part_s / 2, f"for {longest_s} s no call was sent"
    folder = RunFolder(tmp_path / "job")
    assert len(folder.names("parts", parts.SUFFIX)) > 4, "parts were written while calls went on"
    record = folder.read_json("run.json") or {}
    assert record["finished_at"] - sent.to_list()[-1].timestamp() > part_s, "the disk was not slow"
    recorded = sum(1 for name in folder.names("calls", SUFFIX) for _ in scan(folder.fetch(name)))
    assert recorded == len(sent)


def foreign(calm: Calm, name: str, epoch: int) -> dict[str, bytes]:
    """Parts as a worker of another start would write them: every unit, with that worker's name."""
    folder = RunFolder(calm.root / "job")
    made: dict[str, bytes] = {}
    for number, part in enumerate(folder.names("parts", parts.SUFFIX)):
        rows = {table: found.to_pylist() for table, found in parts.decode(folder.read(part) or b"").items()}
        for row in rows["dialogues"]:
            row |= {"worker": name, "epoch": epoch}
        made[parts.part_name(epoch, name, number)] = parts.encode(parts.batches(rows))
    return made


def test_old_workers_that_still_write_during_a_rerun(small: Calm, tmp_path: Path) -> None:
    """Their parts turn up while the same units are leased again: each unit is there once, whoever was first."""
    folder = RunFolder(tmp_path / "job")
    late = {**foreign(small, "old", 0), **foreign(small, "newer", 99)}
    torn = next(iter(foreign(small, "torn", 98).items()))
    written = threading.Event()

    def observe(progress: Progress) -> None:
        if progress.done and not written.is_set():
            for name, data in late.items():
                folder.put(name, data)
            folder.put(torn[0], torn[1][: len(torn[1]) // 2])
            written.set()

    plan = make_plan(*load_job(small.job, {"run.root": str(tmp_path)}))
    result = run(plan, observe=observe)
    assert written.is_set()
    assert result.status == 0
    assert_same(small, tmp_path)
    rows = pl.read_parquet(folder.traces / "dialogues.parquet")
    assert set(rows["worker"]) == {"newer"}, "of equal rows the one of the latest start counts"
    per_unit = Counter(rows["dialogue_id"].to_list())
    assert set(per_unit.values()) == {1}
    again = run(plan)
    assert again.progress.skipped == 30
    assert again.progress.counts["calls"] == 0
    assert any("damaged part files were left out" in note for note in again.notes)
    assert_same(small, tmp_path)
