"""The start of something that may fail to start, and may be asked for by several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Start:
    """Whoever waits while it is under way shares it; whoever comes after a failure begins it anew."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Until it has started. Raises what kept it from that."""
        if self._task is None or self._failed(self._task):
            self._task = asyncio.create_task(self._begin())
        await asyncio.shield(self._task)

    async def settled(self) -> None:
        """Until nothing of it is under way, however it went."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @staticmethod
    def _failed(task: asyncio.Task[None]) -> bool:
        return task.done() and (task.cancelled() or task.exception() is not None)
