"""``dialoom run`` as a process of its own: interrupted, terminated, resumed; nothing is lost or left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psutil
import pytest

from dialoom.runtime.calllog import scan
from dialoom.traces.read import read_table
from support.jobs import SCRIPTED, chat, write_job

pytestmark = pytest.mark.timeout(400)  # each process starts a Ray of its own
TESTS = Path(__file__).parents[1]
DIALOGUES = [chat(f"d{i}", "hello", "bye") for i in range(200)]
CALLS = 200 * 2 * 2


@contextlib.contextmanager
def dialoom(*words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command as a process; it and all it started are gone at the end."""
    command = [sys.executable, "-m", "dialoom.cli.main", *words]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | {"PYTHONPATH": str(TESTS)}
    with (folder / "stderr").open("a") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder
        )
    try:
        yield process
    finally:
        started = family(process.pid)
        process.kill()
        process.communicate()
        for child in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def family(pid: int) -> list[psutil.Process]:
    """All processes that a process started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 180) -> None:
    """Until ``condition`` holds; fails where the process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the process ended before"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def assert_gone(started: list[psutil.Process]) -> None:
    """None of these processes lives on."""
    _, alive = psutil.wait_procs(started, timeout=60)
    assert [p.name() for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def parts(folder: Path) -> int:
    return len(list(folder.glob("runs/small/parts/*.part")))


def interrupted(folder: Path, number: signal.Signals) -> tuple[int, str]:
    """Start or resume the job, send a signal once results come in. The exit status and what was printed."""
    before = parts(folder)
    with dialoom("run", "job.yaml", "--log-format", "plain", folder=folder) as process:
        wait_for(lambda: parts(folder) > before, process)
        started = family(process.pid)
        assert any("raylet" in p.name() for p in started)
        process.send_signal(number)
        out, _ = process.communicate(timeout=120)
        assert_gone(started)
        return process.returncode, out


def units(folder: Path) -> dict[str, str]:
    rows = read_table(folder / "runs/small", "dialogues", ["dialogue_id", "outcome"]).to_pylist()
    assert len({r["dialogue_id"] for r in rows}) == len(rows)
    return {r["dialogue_id"]: r["outcome"] for r in rows}


def tracked(folder: Path) -> float:
    """Accepted units as the tracking store has them."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/runs/mlflow.db")
    experiment = client.get_experiment_by_name("dialoom")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    return float(found.data.metrics["units/accepted"])


def test_interrupted_twice_and_resumed(tmp_path: Path) -> None:
    engine = SCRIPTED | {"latency_s": 0.05, "concurrency": 8}
    write_job(tmp_path, DIALOGUES, engines={"main": engine}, run={"root": "runs"})

    done = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        status, printed = interrupted(tmp_path, number)
        assert status == 130
        assert "interrupted" in printed
        found = units(tmp_path)
        assert set(found.values()) == {"accepted", "interrupted"}
        accepted = sum(o == "accepted" for o in found.values())
        assert done < accepted < len(DIALOGUES)
        done = accepted
        record = orjson.loads((tmp_path / "runs/small/run.json").read_bytes())
        assert record["status"] == "interrupted"

    with dialoom("run", "job.yaml", "--set", "tracking.enabled=true", folder=tmp_path) as process:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
    assert "mlflow ui --backend-store-uri sqlite:///" in out
    assert f"{done} of them done before" in out
    assert set(units(tmp_path).values()) == {"accepted"}
    assert len(units(tmp_path)) == len(DIALOGUES)

    log = [d for path in (tmp_path / "runs/small/calls").iterdir() for d, _, _ in scan(path)]
    assert len(log) == len(set(log)) == CALLS  # no call was paid twice
    assert tracked(tmp_path) == len(DIALOGUES)
    errors = (tmp_path / "stderr").read_text()
    assert "Traceback" not in errors
    assert "run the same command again to go on" in errors


def interrupt(process: subprocess.Popen[str], when: Callable[[psutil.Process], bool], folder: Path) -> None:
    """Interrupt the command once it has such a process; it ends in good order and leaves none."""
    wait_for(lambda: any(when(p) for p in family(process.pid)), process)
    started = family(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert_gone(started)
    assert "Traceback" not in (folder / "stderr").read_text()


def test_interrupted_while_ray_starts(tmp_path: Path) -> None:
    write_job(tmp_path, DIALOGUES, run={"root": "runs"})
    with dialoom("run", "job.yaml", folder=tmp_path) as process:
        interrupt(process, lambda p: "gcs_server" in p.name(), tmp_path)


def test_interrupted_while_an_engine_loads(tmp_path: Path) -> None:
    """The engine waits for a node that never comes; the worker is there by then. What was read has its row."""
    engine = {"use": "support.pinned_engine:HUGE", "rule": "support.rules:echo"}
    job = write_job(tmp_path, DIALOGUES[:5], engines={"main": engine})
    with dialoom("run", str(job), folder=tmp_path) as process:
        interrupt(process, lambda p: "ray::Worker" in " ".join(words(p)), tmp_path)
    rows = read_table(tmp_path / "runs" / "small", "dialogues").to_pylist()
    assert {r["outcome"] for r in rows} == {"interrupted"}


def words(process: psutil.Process) -> list[str]:
    """Its command line; nothing where it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_asked_twice_it_leaves_at_once(tmp_path: Path) -> None:
    engine = SCRIPTED | {"latency_s": 60.0, "concurrency": 8}
    write_job(tmp_path, [chat("d0", "hello")], engines={"main": engine}, run={"root": "runs"})
    with dialoom("run", "job.yaml", "--log-format", "json", folder=tmp_path) as process:
        wait_for(lambda: '"phase":"running"' in (tmp_path / "stderr").read_text(), process)
        started = family(process.pid)
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "stopping" in (tmp_path / "stderr").read_text(), process)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert time.monotonic() - asked < 50  # the call under way would take a minute
        assert_gone(started)
    assert "Traceback" not in (tmp_path / "stderr").read_text()
