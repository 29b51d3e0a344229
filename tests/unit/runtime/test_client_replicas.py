"""Which replica gets a call, and what happens where none is up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.engine import Address, EngineIdentity, Request, Response, Sampling
from dialoom.errors import EngineError, EngineRefused, Interrupted
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import Answer, EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.usage import Usage
from support import clock

REQUEST = Request((), Sampling(), Address("d", 0, 0))
IDS: tuple[str, ...] = ()


class Standby:
    """A replica whose state the test sets."""

    failed: EngineError | None = None
    crowded = False

    def __init__(self, name: str, load: int = 0, up: bool = True) -> None:
        self.name, self.load, self.up = name, load, up
        self.back = asyncio.Event()

    async def generate(self, request: Request, *, suspect: bool = False) -> Response:
        return Response(self.name, Usage())

    async def wait_up(self, timeout_s: float) -> bool:
        await self.back.wait()
        return self.up

    async def start(self) -> None: ...

    def drain(self) -> None: ...

    async def close(self) -> None: ...


IDENTITY = EngineIdentity("x", "m")


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
def test_the_least_loaded_replica_that_is_up_is_taken(states: list[tuple[int, bool]]) -> None:
    replicas = [Standby(str(i), load, up) for i, (load, up) in enumerate(states)]
    chosen = Pool(IDENTITY, list(replicas)).pick("d")
    loads = [r.load for r in replicas if r.up]
    if chosen is None:
        assert not loads
    else:
        assert chosen.up
        assert chosen.load == min(loads)


def test_a_dialogue_stays_with_its_replica_while_that_is_up() -> None:
    one, two = Standby("one"), Standby("two", load=1)
    pool = Pool(IDENTITY, [one, two])
    assert pool.pick("d") is one
    one.load = 50
    assert pool.pick("d") is one
    assert pool.pick("e") is two
    one.up = False
    assert pool.pick("d") is two
    one.up = True
    one.load = 0
    assert pool.pick("d") is two


def standby_client(folder: Path, *replicas: Standby) -> EngineClient:
    made = RunFolder(folder)
    made.make()
    pools = {"e": Pool(IDENTITY, list(replicas))}
    return EngineClient(pools, CallLog(made, "s"), max_attempts=3, backoff_s=0.0, seed=0)


def test_a_call_waits_for_a_replica_to_come_back(tmp_path: Path) -> None:
    async def run() -> tuple[Answer, float]:
        down = [Standby("one", up=False), Standby("two", up=False)]
        client = standby_client(tmp_path, *down)
        task = asyncio.create_task(client.call("e", REQUEST, IDS))
        await asyncio.sleep(5)
        down[1].up = True
        down[1].back.set()
        return await task, client.counts.waiting_s

    (answer, _), waited_s = clock.run(run())
    assert answer.response.text == "two"
    assert waited_s == pytest.approx(5)


def test_draining_ends_the_wait_for_a_replica(tmp_path: Path) -> None:
    async def run() -> None:
        client = standby_client(tmp_path, Standby("one", up=False))
        asyncio.get_running_loop().call_later(1, client.draining.set)
        with pytest.raises(Interrupted):
            await client.call("e", REQUEST, IDS)

    assert clock.run(run())[1] == pytest.approx(1)


def test_an_engine_whose_replicas_all_failed_for_good_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        gone = Standby("one", up=False)
        gone.failed = EngineError("the model is not there")
        await standby_client(tmp_path, gone).call("e", REQUEST, IDS)

    with pytest.raises(EngineRefused, match="every replica is gone: the model is not there"):
        asyncio.run(run())
