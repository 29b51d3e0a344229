"""Seconds and dollars of engines that are up: from asked for to closed, over stages and sessions, and after a kill."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dialoom.prices import Price
from dialoom.runtime.engine_time import WRITE_S, EngineTime, engine_time
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import EngineSpec
from support import clock

PRICE = Price(gpu_hour=2.0)
SMALL = EngineSpec("vllm", {}, hosted=True, resources={"num_gpus": 1}, price=PRICE)
LARGE = EngineSpec("vllm", {}, hosted=True, replicas=2, resources={"num_gpus": 2}, price=PRICE)
VENDOR = EngineSpec("openai", {}, price=Price(input=1.0))
ENGINES = {"small": SMALL, "large": LARGE, "vendor": VENDOR}


class Watch:
    """A clock that is set by hand, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_each_replica_counts_from_asked_for_to_closed(folder: RunFolder, watch: Watch) -> None:
    up = EngineTime(folder, 1, ENGINES, watch)
    up.asked("small", 0)
    up.asked("large", 0)
    watch.now = 900.0
    up.asked("large", 1)
    watch.now = 1800.0
    up.closed("small", 0)
    up.closed("large", 1)
    watch.now = 3600.0
    up.end()
    watch.now = 9999.0
    assert up.figures() == engine_time(folder) == {
        "small": {"replica_s": 1800.0, "gpu_s": 1800.0, "gpu_usd": 1.0},
        "large": {"replica_s": 4500.0, "gpu_s": 9000.0, "gpu_usd": 5.0},
        "vendor": {"replica_s": 0.0, "gpu_s": 0.0, "gpu_usd": 0.0},
    }  # fmt: skip


def test_stages_of_a_session_and_sessions_add_up(folder: RunFolder, watch: Watch) -> None:
    for epoch, seconds in ((1, 10.0), (1, 20.0), (2, 40.0)):
        up = EngineTime(folder, epoch, {"small": SMALL}, watch)
        up.asked("small", 0)
        up.write()
        watch.now += seconds
        up.write()  # what is written again counts once
        up.end()
    assert engine_time(folder)["small"]["replica_s"] == 70.0
    assert folder.names("engine_time", ".json") == ["engine_time/00001.json", "engine_time/00002.json"]


class Telling(RunFolder):
    """Says when something was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.written = threading.Event()

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        self.written.set()


def test_a_killed_session_left_its_time(tmp_path: Path, watch: Watch) -> None:
    folder = Telling(tmp_path)
    up = EngineTime(folder, 1, {"small": SMALL}, watch)
    up.asked("small", 0)
    watch.now = 3600.0

    async def killed() -> None:
        writing = asyncio.create_task(up.keep_written())
        await asyncio.to_thread(folder.written.wait)
        writing.cancel()

    _, waited_s = clock.run(killed())
    assert waited_s >= WRITE_S
    assert engine_time(folder)["small"]["gpu_usd"] == 2.0


def test_a_run_without_such_files_had_no_engines(folder: RunFolder) -> None:
    assert engine_time(folder) == {}
