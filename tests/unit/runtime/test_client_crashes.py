"""Calls whose engine ends or cannot be reached: who is sent again where, who is suspect, who is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dialoom.engine import Address, EngineIdentity, Message, Request, Response, Sampling
from dialoom.errors import EngineBusy, EngineCrashed, EngineDown, EngineError, Interrupted, PoisonCall
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import POISON_CRASHES, SHUN_S, SUSPECT_CRASHES, Answer, EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.gate import Gate
from dialoom.runtime.replicas import LocalReplica, Replica
from dialoom.usage import Usage
from support import clock
from support.told import Told

IDENTITY = EngineIdentity("x", "m")


class Fragile:
    """A replica that raises, for each try, what it was told to; None answers, and the last word holds on."""

    up = True
    failed: EngineError | None = None
    crowded = False

    def __init__(self, name: str, *words: EngineError | None) -> None:
        self.name = name
        self.load = 0
        self.suspects: list[bool] = []
        self.texts: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while it answers."""
        self._words = list(words) or [None]
        self._back = asyncio.Event()

    async def generate(self, request: Request, *, suspect: bool = False) -> Response:
        self.suspects.append(suspect)
        self.texts.append(request.messages[-1].content)
        self.meanwhile()
        word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        if word is not None:
            raise word
        return Response(self.name, Usage())

    async def wait_up(self, timeout_s: float) -> bool:
        if self.failed is None:
            await self._back.wait()
        return self.up

    async def start(self) -> None: ...

    def come_back(self) -> None:
        self.up = True
        self._back.set()

    def drain(self) -> None: ...

    async def close(self) -> None: ...


def client(folder: Path, *replicas: Replica, attempts: int = 3, backoff_s: float = 0.0) -> EngineClient:
    made = RunFolder(folder)
    made.make()
    pools = {"e": Pool(IDENTITY, list(replicas))}
    return EngineClient(pools, CallLog(made, "s"), max_attempts=attempts, backoff_s=backoff_s, seed=0)


async def ask(by: EngineClient, text: str = "hi", dialogue: str = "d") -> Answer:
    request = Request((Message("user", text),), Sampling(), Address(dialogue, 0, 0))
    return await by.call("e", request, [by.digests.message(m) for m in request.messages])


def crash(*, under_way: bool = True) -> EngineCrashed:
    return EngineCrashed("it ended", under_way=under_way)


def test_a_call_becomes_suspect_and_is_given_up_at_last(tmp_path: Path) -> None:
    replica = Fragile("r", crash())
    with pytest.raises(PoisonCall) as caught:
        asyncio.run(ask(client(tmp_path, replica)))
    assert replica.suspects == [False] * SUSPECT_CRASHES + [True] * (POISON_CRASHES - SUSPECT_CRASHES)
    assert caught.value.kind == "poison"
    assert caught.value.__dict__["attempts"] == POISON_CRASHES


def test_a_call_that_had_not_begun_is_not_to_blame(tmp_path: Path) -> None:
    replica = Fragile("r", crash(), *[crash(under_way=False)] * 20, None)
    answer = asyncio.run(ask(client(tmp_path, replica)))
    assert answer.response.text == "r"
    assert answer.response.attempts == 22
    assert not any(replica.suspects)


def test_crashes_use_up_no_attempts(tmp_path: Path) -> None:
    words = [crash(), EngineDown("reset"), crash(), EngineDown("reset"), crash(), None]
    assert asyncio.run(ask(client(tmp_path, Fragile("r", *words), attempts=3))).response.attempts == 6


def test_a_crash_while_draining_sends_nothing_again(tmp_path: Path) -> None:
    replica = Fragile("r", crash())

    async def run() -> None:
        made = client(tmp_path, replica)
        replica.meanwhile = made.drain
        await ask(made)

    with pytest.raises(Interrupted):
        asyncio.run(run())
    assert len(replica.texts) == 1


def test_a_replica_that_cannot_be_reached_gets_no_calls_for_a_while(tmp_path: Path) -> None:
    away, here = Fragile("away", EngineDown("refused")), Fragile("here")

    async def run() -> None:
        made = client(tmp_path, away, here)
        for i in range(10):
            assert (await ask(made, f"text {i}", f"d{i}")).response.text == "here"
        assert len(away.texts) == 1

    asyncio.run(run())


def test_it_is_asked_again_later_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dialoom.runtime.client.time.monotonic", lambda: now[0])
    away, here = Fragile("away", EngineDown("refused"), EngineDown("refused"), None), Fragile("here")
    here.load = 1
    pool = Pool(IDENTITY, [away, here])
    assert pool.pick("a") is away
    pool.failed(away)
    assert pool.pick("a") is here
    now[0] += SHUN_S
    assert pool.pick("b") is away
    pool.failed(away)
    now[0] += SHUN_S
    assert pool.pick("c") is here, "each failure doubles the time"
    now[0] += SHUN_S
    assert pool.pick("d") is away
    pool.answered(away)
    pool.failed(away)
    now[0] += SHUN_S
    assert pool.pick("e") is away, "an answer makes the next failure the first again"


def test_the_only_replica_is_tried_however_often_it_fails(tmp_path: Path) -> None:
    replica = Fragile("r", EngineDown("reset"), EngineDown("reset"), None)
    assert asyncio.run(ask(client(tmp_path, replica))).response.attempts == 3


def test_a_busy_replica_is_not_shunned(tmp_path: Path) -> None:
    busy, other = Fragile("busy", EngineBusy("wait"), None), Fragile("other")
    assert asyncio.run(ask(client(tmp_path, busy, other))).response.text == "busy"


def test_one_replica_given_up_does_not_end_the_wait_for_the_others(tmp_path: Path) -> None:
    gone, restarting = Fragile("gone"), Fragile("restarting")
    gone.up, gone.failed, restarting.up = False, EngineError("does not start"), False

    async def run() -> str:
        task = asyncio.create_task(ask(client(tmp_path, gone, restarting)))
        await asyncio.sleep(5)
        restarting.come_back()
        return (await task).response.text

    assert clock.run(run())[0] == "restarting"


def test_calls_that_wait_at_the_gate_are_not_sent_while_draining(tmp_path: Path) -> None:
    engine = Told("ok")

    async def run() -> list[object]:
        engine.hold = asyncio.Event()
        made = client(tmp_path, LocalReplica("r", engine, Gate(2)))
        tasks = [asyncio.create_task(ask(made, f"text {i}", f"d{i}")) for i in range(6)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(engine.calls) == 2
        made.drain()
        engine.hold.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert len(engine.calls) == 2
    assert [type(f) for f in found] == [Answer, Answer, *[Interrupted] * 4]
