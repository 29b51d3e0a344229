"""Replicas of an engine as a worker sees them: one in its own process, or one in an actor.

A replica's ``generate`` makes one try and raises EngineError kinds. Calls to an actor travel in batches: whatever is
ready goes out with one message, whatever is finished comes back with one, so that a call costs a fraction of a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from dialoom.engine import Engine, Request, Response, answer
from dialoom.errors import EngineBusy, EngineCrashed, EngineDown, EngineError
from dialoom.runtime.cluster import first_line
from dialoom.runtime.gate import Gate
from dialoom.runtime.start import Start
from dialoom.usage import Usage

Item = tuple[int, Request | None, bool]
"""A call on its way to an actor: its number, and whether it is suspect.

Without a request: the worker knows that the suspect begins, or (False) nobody waits for the call any more."""

RESTARTS = 6
"""Failed starts in a row after which a replica is given up."""
LONGEST_START_WAIT_S = 60.0
"""Before the next start it rests for a second, doubled each time, up to so long."""


class Replica(Protocol):
    """One running copy of an engine."""

    name: str
    load: int
    """Calls of this worker that are under way here."""
    up: bool
    failed: EngineError | None
    """Why it will never be up again."""

    @property
    def crowded(self) -> bool:
        """Whether calls of this worker wait here, so that a place that falls free is to be taken at once."""

    async def start(self) -> None:
        """Start what belongs to this worker. Raises EngineError kinds; after EngineDown each call tries it again."""

    async def generate(self, request: Request, *, suspect: bool = False) -> Response:
        """One try. Of calls that are ``suspect`` of having ended a process, a replica runs one at a time."""

    async def wait_up(self, timeout_s: float) -> bool:
        """Whether it answers again within the time."""

    def drain(self) -> None:
        """Send no call any more that waits for its turn here: it raises Interrupted."""

    async def close(self) -> None:
        """Stop what belongs to this worker."""


def engine_error(error: Exception, where: str) -> EngineError:
    """Whatever an engine raised, as an EngineError: its own exceptions are no bugs of the method that called."""
    if isinstance(error, EngineError):
        return error
    return EngineError(f"{type(error).__name__}: {error}", where=where, hint="The engine itself failed.")


class LocalReplica:
    """An engine in this process; a gate caps its calls in flight."""

    up = True
    failed: EngineError | None = None

    def __init__(self, name: str, engine: Engine, gate: Gate) -> None:
        self.name = name
        self.load = 0
        self.gate = gate
        self._engine = engine
        self._start = Start(engine.start)
        self._down = False

    @property
    def crowded(self) -> bool:
        """Whether the gate is full."""
        return self.gate.crowded

    async def start(self) -> None:
        self._down = True
        await self._start.wait()
        self._down = False

    async def generate(self, request: Request, *, suspect: bool = False) -> Response:
        self.load += 1
        queued = time.monotonic()
        try:
            async with self.gate.call() as sent_at:
                try:
                    if self._down:
                        await self.start()
                    response = await answer(self._engine, request)
                except EngineBusy as error:
                    self.gate.refused(sent_at, error.retry_after_s)
                    raise
                except Exception as error:
                    raise engine_error(error, self.name) from error
                self.gate.succeeded()
        finally:
            self.load -= 1
        if sent_at - queued < 0.001:
            return response
        return replace(response, usage=response.usage + Usage(queue_s=sent_at - queued))

    async def wait_up(self, timeout_s: float) -> bool:
        return True

    def drain(self) -> None:
        self.gate.close()

    async def close(self) -> None:
        await self._engine.close()


class HostedReplica:
    """An engine in an actor (:class:`dialoom.runtime.host.EngineHost`), possibly on another machine.

    It joins when the actor is ready and leaves when it is lost: a replica whose node comes later, or goes, costs
    nothing but its share of the work.
    """

    crowded = False
    """Its places are taken in its own process."""

    def __init__(self, name: str, actor: Any, worker: str) -> None:
        self.name = name
        self.load = 0
        self.up = False
        self.failed: EngineError | None = None
        self._actor = actor
        self._worker = worker
        self._numbers = itertools.count()
        self._outbox: list[Item] = []
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._held: set[int] = set()
        """Suspects that have not begun."""
        self._polls = 0
        self._sending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._revived = asyncio.Event()
        self._background(self._revive())

    async def start(self) -> None:
        pass  # it loads in its own process, and joins when it is ready

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def generate(self, request: Request, *, suspect: bool = False) -> Response:
        if not self.up:
            raise EngineDown("the engine's process is being restarted", where=self.name)
        number = next(self._numbers)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        if suspect:
            self._held.add(number)
        self.load += 1
        self._post((number, request, suspect))
        try:
            return await future
        except asyncio.CancelledError:
            self._post((number, None, False))
            raise
        finally:
            self.load -= 1
            self._waiting.pop(number, None)
            self._held.discard(number)

    def _post(self, *items: Item) -> None:
        self._outbox += items
        if not self._sending:
            self._sending = True
            # A callback, not a task: it runs after every coroutine that is ready now has added its call.
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._sending = False
        batch, self._outbox = self._outbox, []
        if batch or (self._waiting and not self._polls):
            self._background(self._exchange(batch))

    async def _exchange(self, batch: list[Item]) -> None:
        from ray.exceptions import RayError

        self._polls += 1
        try:
            finished = await self._actor.exchange.remote(self._worker, batch)
        except RayError as error:
            self._lost(error)
            return
        finally:
            self._polls -= 1
        for number, result in finished:
            future = self._waiting.get(number)
            if result is None:
                self._held.discard(number)
                self._post((number, None, True))
            elif future is not None and not future.done():
                if isinstance(result, Response):
                    future.set_result(result)
                else:
                    future.set_exception(result)
        if not self._polls and self._waiting:
            self._post()

    def _lost(self, error: Exception) -> None:
        """The actor died or cannot be reached: every call under way there fails and may be sent elsewhere."""
        unsent = {number for number, _, _ in self._outbox} | self._held
        for number, future in list(self._waiting.items()):
            if not future.done():
                what = f"the engine's process ended ({type(error).__name__})"
                future.set_exception(EngineCrashed(what, where=self.name, under_way=number not in unsent))
        self._outbox.clear()
        if self.up:
            self.up = False
            self._revived.clear()
            self._background(self._revive())

    async def _revive(self) -> None:
        from ray.exceptions import ActorUnavailableError, RayError

        failures = 0
        while not self.up and self.failed is None:
            asked = time.monotonic()
            try:
                await self._actor.ready.remote()
                self.up = True
            except RayError as error:
                # At once unavailable: it is being restarted or its node is away, which is no failed start.
                failures += not isinstance(error, ActorUnavailableError) or time.monotonic() - asked > 1.0
                if failures >= RESTARTS:
                    what = f"does not start again after {RESTARTS} tries: {first_line(error)}"
                    self.failed = EngineError(what, where=self.name)
                else:
                    await asyncio.sleep(min(2.0 ** (failures - 1), LONGEST_START_WAIT_S))
        self._revived.set()

    def drain(self) -> None:
        pass  # what waits here was sent

    async def wait_up(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._revived.wait(), timeout_s)
        return self.up

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
