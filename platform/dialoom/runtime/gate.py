"""How many calls may be in flight at one replica: a fixed number, or one that an endpoint's answers move.

The controller is a pure state machine: it is told what happened and when, and says how many calls are allowed. It adds
one call a round of successes while the limit is in use, and halves at a refusal, once for all the calls that were sent
before the cut (additive increase, multiplicative decrease).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from dialoom.errors import Interrupted

FIRST_LIMIT = 16.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Control:
    """State of the controller: ``limit`` calls may be in flight, never more than ``ceiling``; times are monotonic."""

    limit: float
    ceiling: int
    cut_at: float = float("-inf")
    paused_until: float = float("-inf")

    @property
    def allowed(self) -> int:
        """Calls that may be in flight."""
        return max(1, int(self.limit))

    def succeeded(self, in_flight: int) -> Control:
        """A call came back well while ``in_flight`` calls (it included) were under way."""
        if in_flight < self.allowed:  # the limit was not what held the calls back
            return self
        return replace(self, limit=min(float(self.ceiling), self.limit + 1.0 / self.limit))

    def refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> Control:
        """The endpoint asked for fewer calls; ``retry_after_s`` holds back every call until then, a minute at most."""
        paused = self.paused_until
        if retry_after_s is not None:
            paused = max(paused, now + min(retry_after_s, LONGEST_PAUSE_S))
        if sent_at <= self.cut_at:
            return replace(self, paused_until=paused)
        return replace(self, limit=max(1.0, self.limit / 2.0), cut_at=now, paused_until=paused)


class Gate:
    """Lets calls in, first come first served. Adaptive gates begin low and find the endpoint's own limit."""

    def __init__(self, ceiling: int, *, adaptive: bool = False) -> None:
        self.control = Control(min(FIRST_LIMIT, ceiling) if adaptive else float(ceiling), ceiling)
        self.in_flight = 0
        self._adaptive = adaptive
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = asyncio.Event()

    @property
    def crowded(self) -> bool:
        """Whether as many calls are in flight as may be: a place that falls free is wanted at once."""
        return self.in_flight >= self.control.allowed

    @contextlib.asynccontextmanager
    async def call(self) -> AsyncIterator[float]:
        """Room for one call; gives the time (monotonic seconds) at which it was let in.

        Raises Interrupted where the gate is closed before that.
        """
        if self.in_flight >= self.control.allowed or self._waiting:
            await self._wait()
        else:
            self.in_flight += 1
        try:
            await self._pause()
            yield time.monotonic()
        finally:
            self.in_flight -= 1
            self._admit()

    def close(self) -> None:
        """Let nothing in any more; calls that were let in go on."""
        self._closed.set()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(_closed())

    async def _pause(self) -> None:
        """Wait as long as the endpoint asked; it may ask for more meanwhile."""
        while (pause_s := self.control.paused_until - time.monotonic()) > 0 and not self._closed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), pause_s)
        if self._closed.is_set():
            raise _closed()

    async def _wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            # Let in and cancelled at once: the room goes on.
            if future.done() and not future.cancelled() and future.exception() is None:
                self.in_flight -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.control.allowed:
            future = self._waiting.popleft()
            if not future.done():
                self.in_flight += 1
                future.set_result(None)

    def succeeded(self) -> None:
        """Tell the controller of a success."""
        if self._adaptive:
            self.control = self.control.succeeded(self.in_flight)
            self._admit()

    def refused(self, sent_at: float, retry_after_s: float | None) -> None:
        """Tell the controller of a refusal."""
        if self._adaptive:
            self.control = self.control.refused(sent_at, time.monotonic(), retry_after_s)


def _closed() -> Interrupted:
    return Interrupted("the run is stopping; this call was not sent")
