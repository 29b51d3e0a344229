"""The driver: starts engines and workers, hands out leases, counts, and ends the run whichever way it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from dialoom.errors import DialoomError, EngineDown, EngineError, StorageError
from dialoom.outcome import Outcome
from dialoom.runtime.cluster import (
    LOOK_S,
    as_own,
    cause_of,
    first_line,
    has_ended,
    lacking,
    own_raylet,
    unless_lost,
    until,
    within,
)
from dialoom.runtime.ending import Ending
from dialoom.runtime.engine_time import EngineTime
from dialoom.runtime.feed import Feed
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.runtime.host import EngineHost
from dialoom.runtime.index import Index
from dialoom.runtime.limits import Limits
from dialoom.runtime.plan import Plan
from dialoom.runtime.progress import Observe, Progress
from dialoom.runtime.ray_metrics import RayMetrics
from dialoom.runtime.suspects import Suspects
from dialoom.runtime.worker import Lease, Report, Worker, segment_name
from dialoom.unit import UnitKey

log = logging.getLogger(__name__)

WORKER_LOSSES = 20
"""So many lost workers without one committed unit between them end the run."""
STORAGE_PATIENCE_S = 60.0
"""So long the results may fail to be written before the run stops."""
CLOSE_S = 20.0
ANSWER_S = 120.0
"""A worker answers twice a second; one that is silent for so long is taken for lost."""
START_S = 600.0
"""So long a worker may take to start: it reads the call logs."""


@dataclass
class _Slot:
    """A place for one worker; a lost worker is followed by another in the same slot."""

    number: int
    actor: Any = None
    name: str = ""
    held: dict[UnitKey, Lease] | None = None
    quarantine: bool = False
    trouble: str = ""
    running: int = 0


class Driver:
    """Runs one plan in one folder, within what the session's ``limits`` leave to it."""

    def __init__(
        self, plan: Plan, folder: RunFolder, feed: Feed, index: Index, epoch: int, observe: Observe, limits: Limits
    ) -> None:
        self.progress = Progress()
        self.ending = Ending.DONE
        self.error: DialoomError | None = None
        self.engines: dict[str, list[dict[str, Any]]] = {}
        self.engine_time = EngineTime(folder, epoch, plan.engines)
        self._plan = plan
        self._folder = folder
        self._feed = feed
        self._index = index
        self._epoch = epoch
        self._observe = observe
        self._hosts: dict[str, list[Any]] = {}
        self._calls = ""
        """Name of the index of recorded calls, where they are many."""
        self._slots = [_Slot(i) for i in range(plan.workers)]
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._indexed = asyncio.Event()
        self._engines_up = asyncio.Event()
        self._losses = 0
        self._trouble_since: float | None = None
        self._limits = limits
        self._suspects = Suspects()
        self._raylet = own_raylet()

    async def run(self) -> None:
        """From engines to the last committed unit. Sets ``ending`` and ``error``; raises what kept it from starting."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        beside = [asyncio.create_task(self._watch()), asyncio.create_task(self.engine_time.keep_written())]
        try:
            self.progress.phase = "loading engines"
            self._make_hosts()
            await self._serve_all()
            await self._close_rest()
            self.progress.phase = "closing"  # no limit ends what is done
            await self._close()
        finally:
            for task in beside:
                task.cancel()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            self._kill()
            self.engine_time.end()

    def stop(self, ending: Ending, error: DialoomError | None = None) -> None:
        """Stop in good order; the first reason counts."""
        if not self._stopping.is_set():
            self.ending, self.error = ending, error
            self.progress.phase = "stopping: calls under way are awaited"
            self._stopping.set()
            self._changed.set()

    def _interrupt(self) -> None:
        if self._stopping.is_set():  # asked twice: leave at once; what is committed stays
            self._kill()
            raise KeyboardInterrupt
        self.stop(Ending.INTERRUPTED)

    @property
    def _ray_lost(self) -> bool:
        """Whether no actor can be started any more; those that live may still answer."""
        return self._raylet is not None and has_ended(self._raylet)

    def _check_ray(self) -> None:
        if self._ray_lost and not self._stopping.is_set():
            hint = "What is committed is kept: run the same command again to go on. Memory is the usual reason."
            self.stop(Ending.WORKERS, EngineDown("Ray's own process on this machine (raylet) has ended", hint=hint))

    def _check_limits(self) -> None:
        if self.progress.phase == "closing":
            return
        reached = self._limits.reached if self.progress.phase == "running" else self._limits.spent
        if met := reached(self.progress, time.monotonic(), self.engine_time.gpu_usd):
            self.stop(*met)

    async def _watch(self) -> None:
        publish = RayMetrics(self._plan.name) if self._plan.options.run.ray_metrics else None
        while True:
            progress = self.progress
            progress.skipped = self._feed.skipped
            progress.total = self._feed.units_read - self._feed.skipped if self._feed.ended else None
            progress.sample()
            try:
                self._observe(progress)
                if publish is not None:
                    publish(progress)
            except Exception:  # a display is not worth the job, and the limits are looked at here too
                log.exception("progress cannot be shown any more")
                self._observe, publish = (lambda _: None), None
            self._check_limits()
            self._check_ray()
            await asyncio.sleep(0.25)

    async def _serve_all(self) -> None:
        """Engines and workers start beside each other; units are handed out once every engine has a replica."""
        tasks = [asyncio.create_task(self._load()), *(asyncio.create_task(self._serve(slot)) for slot in self._slots)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self) -> None:
        """Wait for the index, which workers need to start, and for the engines, which they need to work."""
        engines = [self._first_ready(name, hosts) for name, hosts in self._hosts.items()]
        await asyncio.gather(self._index_calls(), *engines)
        if not self._stopping.is_set():
            self.progress.phase = "running"
        self.progress.started = time.monotonic()
        self._limits.begin(self.progress.started)
        self._engines_up.set()

    def _make_hosts(self) -> None:
        """The engines' actors; they load at once."""
        import ray

        silence_s = self._plan.options.limits.stall_s / 2  # a replica that hangs is replaced before the run gives up
        for name, spec in self._plan.engines.items():
            if not spec.hosted:
                continue
            actor = ray.remote(EngineHost).options(
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=1000,
                num_cpus=spec.resources.get("num_cpus", 0),
                num_gpus=spec.resources.get("num_gpus", 0),
                scheduling_strategy="SPREAD",
            )
            self._hosts[name] = []
            for i in range(spec.replicas):
                self.engine_time.asked(name, i)
                self._hosts[name].append(actor.remote(spec.use, dict(spec.settings), i, spec.in_flight, silence_s))

    async def _index_calls(self) -> None:
        """Index what was recorded before, while the engines load."""
        import ray

        from dialoom.runtime.recorded import index_calls, worth_indexing

        sources = [str(self._folder), *self._plan.recorded]
        if await asyncio.to_thread(worth_indexing, [self._folder, *map(open_folder, self._plan.recorded)]):
            task = ray.remote(index_calls).options(num_cpus=0, max_retries=1)
            work = unless_lost(self._raylet, task.remote(str(self._folder), sources, self._epoch))
            try:
                self._calls = await until(self._stopping, work) or ""
            except ray.exceptions.RayError as error:
                raise as_own(error) from error
        self._indexed.set()

    async def _first_ready(self, name: str, hosts: list[Any]) -> None:
        """Wait for the first replica; the others join when they are there. Raises the error of the last that fails."""
        found = self.engines.setdefault(name, [])
        waiting = {asyncio.ensure_future(self._ready(name, i, host)) for i, host in enumerate(hosts)}
        stop = asyncio.ensure_future(self._stopping.wait())
        until = time.monotonic() + self._plan.options.limits.stall_s
        while waiting and not found and not stop.done():
            await asyncio.wait([stop, *waiting], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            self._note_waiting(name, until)
            ended = {t for t in waiting if t.done()}
            waiting -= ended
            for task in ended:
                error = task.exception()
                if error is None:
                    found.append(task.result())
                elif waiting or found:
                    self.progress.trouble = str(error)
                else:
                    raise error
        stop.cancel()
        for task in waiting:
            task.add_done_callback(lambda t: None if t.cancelled() or t.exception() else found.append(t.result()))

    def _note_waiting(self, name: str, until: float) -> None:
        """Say what an engine waits for. Raises EngineError where it has waited for too long."""
        lack = lacking(self._plan.engines[name].resources)
        self.progress.trouble = f"engine '{name}' {lack}" if lack else ""
        if time.monotonic() > until:
            what = f"engine '{name}' did not start within {self._plan.options.limits.stall_s:g} s"
            hint = "See the engine's log; limits.stall_s sets the time."
            raise EngineError(f"{what}: it {lack}" if lack else what, hint=hint)

    async def _ready(self, name: str, number: int, host: Any) -> dict[str, Any]:
        from ray.exceptions import RayError

        try:
            return dict(await host.ready.remote())
        except RayError as error:
            cause = cause_of(error)
            if isinstance(cause, DialoomError):
                raise cause from None
            raise EngineError(
                f"engine '{name}' (replica {number}) does not start: {first_line(error)}",
                hint="Run 'dialoom doctor'; memory is the usual reason where its process was ended.",
            ) from error

    async def _start_worker(self, slot: _Slot) -> None:
        import ray

        slot.name = f"w{slot.number}-{uuid.uuid4().hex[:6]}"
        slot.held = {}
        options = {"max_restarts": 0, "max_concurrency": 16, "num_cpus": 0, "scheduling_strategy": "SPREAD"}
        actor = (
            ray.remote(Worker)
            .options(**options)
            .remote(
                self._plan,
                str(self._folder),
                self._epoch,
                slot.name,
                self._hosts,
                place=(slot.number, len(self._slots)),
                index=self._calls,
            )
        )
        slot.actor = actor
        await unless_lost(self._raylet, within(START_S, actor.start.remote()))
        self.progress.workers += 1

    async def _serve(self, slot: _Slot) -> None:
        """Keep one worker busy until nothing is left; an error of the driver's own ends the run in good order."""
        try:
            await self._keep_busy(slot)
        except DialoomError as error:
            self.stop(Ending.STORAGE if isinstance(error, StorageError) else Ending.INPUT, error)

    async def _keep_busy(self, slot: _Slot) -> None:
        """Feed one worker; replace it when it is lost."""
        from ray.exceptions import RayError, RayTaskError

        while not self._stopping.is_set():
            try:
                await self._indexed.wait()
                await until(self._stopping, self._start_worker(slot))
                if self._stopping.is_set():
                    self._forget(slot)
                    return
                await self._engines_up.wait()
                await self._feed_worker(slot)
                return
            except RayTaskError as error:  # it answered: another worker would fail the same way
                cause = cause_of(error)
                ending = Ending.ENGINE if isinstance(cause, EngineError) else Ending.WORKERS
                self.stop(ending, as_own(error))
                self._lost(slot, error)
                return
            except RayError as error:
                self._lost(slot, error)

    async def _feed_worker(self, slot: _Slot) -> None:
        assert slot.held is not None
        room = self._plan.leased_per_worker
        while True:
            stopping = self._stopping.is_set()
            leases = [] if stopping or self._trouble_since else self._take(slot, room)
            for lease in leases:
                for key in lease.units:
                    slot.held[key] = lease
            if not leases and not slot.held:
                if stopping or await self._all_done():
                    return
                if not slot.trouble:
                    continue
            outcome = self.ending.outcome if stopping else None
            report = await self._exchange(slot, leases, outcome)
            self._account(slot, report)
            room = report.room
            if stopping and slot.held and report.trouble:
                return  # what could not be written stays owed; a longer wait would not help

    async def _exchange(self, slot: _Slot, leases: list[Lease], drain: Outcome | None) -> Report:
        """The worker's report. Raises RayError where it is lost, or silent: a method may hold up the whole process."""
        limits = self._plan.options.limits
        silence_s = min(ANSWER_S, limits.stall_s / 2)
        if drain is not None:
            silence_s = ANSWER_S + limits.drain_s
        report: Report = await within(silence_s, slot.actor.exchange.remote(leases, drain=drain))
        return report

    def _take(self, slot: _Slot, room: int) -> list[Lease]:
        if slot.quarantine and slot.held:
            return []
        slot.quarantine = False
        try:
            leases = self._feed.take(room)
            if not leases and not slot.held:
                leases = self._suspects.take()
                slot.quarantine = bool(leases)
            if leases:
                self._limits.leased(time.monotonic())
            return leases
        except DialoomError as error:
            self.stop(Ending.INPUT, error)
            return []

    async def _all_done(self) -> bool:
        """Whether no worker holds anything and nothing is left; waits for a change otherwise."""
        if self._feed.empty and not self._suspects and not any(s.held for s in self._slots):
            self._changed.set()
            return True
        if self._feed.searching:
            self._limits.begin(time.monotonic())  # reading on is progress
            await asyncio.sleep(0)
            return False
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), 0.5)
        return False

    def _account(self, slot: _Slot, report: Report) -> None:
        assert slot.held is not None
        progress = self.progress
        done = []
        for key, outcome in report.done:
            lease = slot.held.pop(key, None)
            if lease is not None:
                done.append((key, lease.content_hash, outcome))
                progress.outcomes[outcome] += 1
        progress.done += len(done)
        self._index.record(done)
        progress.add(report.counts)
        slot.running = report.running
        progress.running = sum(s.running for s in self._slots)
        progress.last_error = report.last_error or progress.last_error
        if done:
            self._losses = 0
            self._changed.set()
        slot.trouble = report.trouble
        self._note_trouble()
        if report.fatal is not None:
            self.stop(Ending.ENGINE, report.fatal)
        if done or report.last_error:  # a job whose units fail at once may be over before the next look at the limits
            self._check_limits()

    def _note_trouble(self) -> None:
        """No unit is handed out while a worker cannot write; the run ends where that lasts."""
        trouble = self.progress.trouble = next((s.trouble for s in self._slots if s.trouble), "")
        if not trouble:
            self._trouble_since = None
            return
        self._trouble_since = self._trouble_since or time.monotonic()
        if time.monotonic() - self._trouble_since > STORAGE_PATIENCE_S:
            self.stop(Ending.STORAGE, StorageError(f"results cannot be written: {trouble}", where=str(self._folder)))

    @staticmethod
    def _forget(slot: _Slot) -> None:
        """End the slot's worker."""
        import ray

        with contextlib.suppress(Exception):  # a silent one may still live
            ray.kill(slot.actor, no_restart=True)
        slot.actor, slot.running = None, 0

    def _lost(self, slot: _Slot, error: Exception) -> None:
        """A worker is gone: what it committed counts, the rest is handed out again."""
        self._forget(slot)
        held, slot.held, slot.trouble = slot.held or {}, {}, ""
        self.progress.workers = max(0, self.progress.workers - 1)
        prefix = f"parts/{self._epoch:05d}-{slot.name}-"
        names = [n for n in self._folder.names("parts", ".part") if n.startswith(prefix)]
        self._index.load(self._folder, names)
        leases = {id(lease): lease for lease in held.values()}
        owed: list[Lease] = []
        for lease in leases.values():
            keys = tuple(self._index.owed([k for k in lease.units if k in held], lease.content_hash))
            self.progress.done += sum(1 for k in lease.units if k in held and k not in keys)
            if keys:
                recorded = (*lease.recorded, segment_name(self._epoch, slot.name))
                owed.append(replace(lease, units=keys, recorded=recorded))
        free, guilty = self._suspects.sort(owed, first_line(error))
        self._feed.give_back([*free, *guilty])
        self._losses += 1
        log.warning("worker %s was lost (%s); %d units are handed out again", slot.name, first_line(error), len(owed))
        if self._losses >= WORKER_LOSSES:
            own = as_own(error)
            what = f"{self._losses} workers in a row were lost: {own.what}"
            self.stop(Ending.WORKERS, DialoomError(what, hint=own.hint))

    async def _close_rest(self) -> None:
        """On an early end: a row for every unit that was read and not begun."""
        from ray.exceptions import RayError

        if self.ending in (Ending.DONE, Ending.STORAGE):
            return
        slot = next((s for s in self._slots if s.actor is not None), self._slots[0])
        rest = self._feed.remaining() + self._suspects.remaining()
        if not rest or (slot.actor is None and self.ending in (Ending.ENGINE, Ending.WORKERS)):
            return
        closed = [replace(r, close=r.close or self.ending.outcome) for r in rest]
        try:
            if slot.actor is None:
                await self._start_worker(slot)
            slot.held = {key: lease for lease in closed for key in lease.units}
            self._account(slot, await self._exchange(slot, closed, self.ending.outcome))
        except RayError as error:
            slot.actor = None
            log.warning("%d units have no row, they are owed: %s", len(closed), first_line(error))

    async def _close(self) -> None:
        from ray.exceptions import RayError

        for slot in self._slots:
            if slot.actor is not None:
                try:
                    patience_s = CLOSE_S if self._ray_lost else ANSWER_S
                    self._account(slot, await within(patience_s, slot.actor.stop.remote()))
                except RayError as error:
                    log.warning("worker %s was lost while closing: %s", slot.name, first_line(error))
        for name, hosts in self._hosts.items():
            for i, host in enumerate(hosts):
                with contextlib.suppress(RayError, TimeoutError):
                    await asyncio.wait_for(host.close.remote(), CLOSE_S)
                self.engine_time.closed(name, i)

    def _kill(self) -> None:
        import ray

        for actor in [s.actor for s in self._slots if s.actor is not None] + [
            h for hosts in self._hosts.values() for h in hosts
        ]:
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)
