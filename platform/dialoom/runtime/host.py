"""The engine actor: one replica of one engine in a process of its own.

Workers exchange batches with it: new calls in, finished ones out. A dead engine ends the whole process, so that Ray
starts another; the calls under way come back to their workers as EngineCrashed and go elsewhere. A call that is
suspect of having ended a process runs with no other suspect beside it, and its worker is told that it begins: should
the process end again, it is clear which call was under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import psutil

from dialoom import registry
from dialoom.engine import Engine, Request, Response, answer
from dialoom.errors import EngineDown, EngineError
from dialoom.runtime.cluster import own_process_group
from dialoom.runtime.replicas import Item, engine_error
from dialoom.runtime.start import Start
from dialoom.usage import Usage

Result = tuple[int, "Response | EngineError | None"]
"""A call's number and its end; None says that this suspect begins."""
HEARD_S = 30.0
"""So long a worker may take to hear that its suspect begins."""


class EngineHost:
    """Hosts one engine; made a Ray actor by the driver. ``in_flight`` caps the calls in the engine at once.

    An engine that has calls and finishes none for ``silence_s`` seconds counts as dead.
    """

    def __init__(
        self, use: str, settings: Mapping[str, Any], replica: int, in_flight: int, silence_s: float = math.inf
    ) -> None:
        self._made: Engine | None = None
        self._use, self._settings, self._replica = use, settings, replica
        self._name = f"{use}/{replica}"
        self._room = asyncio.Semaphore(in_flight)
        self._alone = asyncio.Lock()
        self._heard: dict[tuple[str, int], asyncio.Event] = {}
        self._start = Start(self._load)
        self._done: dict[str, list[Result]] = {}
        self._wake: dict[str, asyncio.Event] = {}
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._calls = 0
        self._silence_s = silence_s
        self._computing = 0
        self._silent_since = math.inf

    async def ready(self) -> dict[str, Any]:
        """Wait until the engine is loaded. Raises the EngineError that kept it from that; the next call loads anew."""
        await self._start.wait()
        identity = self._engine.identity
        return {"pid": os.getpid(), "model": identity.model, "version": identity.version, "calls": self._calls}

    async def _load(self) -> None:
        own_process_group()
        plugin = registry.find("engines", self._use)
        self._made = plugin.create(plugin.config.model_validate(self._settings), replica=self._replica)
        await self._engine.start()
        if self._silence_s < math.inf:
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """An engine that hangs would keep its calls for ever, and nobody would see it while others go on."""
        while True:
            await asyncio.sleep(self._silence_s / 10)
            if time.monotonic() - self._silent_since > self._silence_s:
                self._end(f"finished none of its {self._computing} calls for {self._silence_s:g} s")

    def _end(self, why: str) -> NoReturn:
        """End the process and those of its engine, which may hang and hold memory, so that Ray starts another."""
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        sys.stderr.write(f"dialoom: engine {self._name} is down: {why}\n")
        sys.stderr.flush()
        os._exit(1)

    @property
    def _engine(self) -> Engine:
        assert self._made is not None
        return self._made

    async def exchange(self, worker: str, batch: Sequence[Item]) -> list[Result]:
        """Take ``batch`` in, give back what is finished for ``worker``: at once, or as soon as something is.

        A newer exchange of the same worker releases the older one, so that at most two of them wait.
        """
        await self.ready()
        done = self._done.setdefault(worker, [])
        for number, request, suspect in batch:
            key = (worker, number)
            if request is None:
                if suspect and key in self._heard:
                    self._heard[key].set()
                elif not suspect and key in self._under_way:
                    self._under_way[key].cancel()
                continue
            work = self._suspect if suspect else self._answer
            task = self._under_way[key] = asyncio.create_task(work(worker, number, request))
            task.add_done_callback(partial(self._under_way.pop, key))
        old = self._wake.get(worker)
        if old is not None:
            old.set()
        wake = self._wake[worker] = asyncio.Event()
        if not done:
            await wake.wait()
            # Calls that finish in the same tick travel together.
            await asyncio.sleep(0)
        finished, done[:] = list(done), []
        if self._wake.get(worker) is wake:
            del self._wake[worker]
        return finished

    async def _suspect(self, worker: str, number: int, request: Request) -> None:
        """As :meth:`_answer`, one at a time, and not before the worker knows that it begins."""
        async with self._alone:
            heard = self._heard[worker, number] = asyncio.Event()
            self._tell(worker, number, None)
            try:
                await asyncio.wait_for(heard.wait(), HEARD_S)
            except TimeoutError:
                self._tell(worker, number, EngineDown("the worker did not answer", where=self._name))
            else:
                await self._answer(worker, number, request)
            finally:
                del self._heard[worker, number]

    async def _answer(self, worker: str, number: int, request: Request) -> None:
        arrived = time.perf_counter()
        result: Response | EngineError
        async with self._room:
            waited = time.perf_counter() - arrived
            self._silent_since = time.monotonic() if not self._computing else self._silent_since
            self._computing += 1
            try:
                result = await answer(self._engine, request)
                if waited > 0.001:
                    result = replace(result, usage=result.usage + Usage(queue_s=waited))
            except EngineDown as error:
                self._end(str(error))
            except Exception as error:  # noqa: BLE001 - whatever an engine raises must reach the caller as data
                result = engine_error(error, self._name)
            finally:
                self._computing -= 1
                self._silent_since = time.monotonic() if self._computing else math.inf
        self._calls += 1
        self._tell(worker, number, result)

    def _tell(self, worker: str, number: int, result: Response | EngineError | None) -> None:
        self._done[worker].append((number, result))
        wake = self._wake.get(worker)
        if wake is not None:
            wake.set()

    async def close(self) -> None:
        """Free the engine; the actor may be killed after that."""
        await self._start.settled()
        if self._made is not None:
            await self._made.close()
