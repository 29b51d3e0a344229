"""The engine's actor without Ray."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dialoom.engine import Address, Message, Request, Response, Sampling
from dialoom.runtime import host
from dialoom.runtime.host import EngineHost

REQUEST = Request((Message("user", "hi"),), Sampling(), Address("d", 0, 0))


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set where the actor would have ended its process."""
    event = asyncio.Event()

    def end(status: int) -> NoReturn:
        event.set()
        raise asyncio.CancelledError

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(host, "own_process_group", lambda: None)
    return event


def hosted(silence_s: float, **settings: Any) -> EngineHost:
    use = "support.hanging_engine:PLUGIN"
    return EngineHost(use, {"rule": "support.rules:echo", **settings}, 0, 4, silence_s)


def test_an_engine_that_finishes_nothing_ends_its_process(
    ended: asyncio.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        made = hosted(0.05, model=str(tmp_path / "hung"))
        call = asyncio.create_task(made.exchange("w", [(0, REQUEST, False)]))
        await asyncio.wait_for(ended.wait(), 20)
        call.cancel()

    asyncio.run(run())
    assert "finished none of its 1 calls for 0.05 s" in capsys.readouterr().err


def test_an_engine_without_calls_may_be_silent(ended: asyncio.Event, tmp_path: Path) -> None:
    async def run() -> Response:
        made = hosted(0.02, model=str(tmp_path))  # the file is there: it answers
        ((_, answer),) = await made.exchange("w", [(0, REQUEST, False)])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.1)
        assert isinstance(answer, Response)
        return answer

    assert asyncio.run(run()).text


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_call_that_nobody_waits_for_any_more_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        made = hosted(math.inf, model=str(tmp_path / "hung"))
        waiting = [asyncio.create_task(made.exchange("w", [(0, REQUEST, False)]))]
        await settle()
        assert made._computing == 1
        waiting.append(asyncio.create_task(made.exchange("w", [(0, None, False), (7, None, False)])))
        await settle()
        assert made._computing == 0
        assert not made._under_way
        for task in waiting:
            task.cancel()

    asyncio.run(run())
