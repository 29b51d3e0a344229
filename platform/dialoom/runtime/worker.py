"""The worker: leases units, runs many at once, commits what is finished.

One event loop owns all of it. The driver talks to it by :meth:`Worker.exchange` only, and learns of a unit when its
part is committed, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dialoom import registry
from dialoom.dialogue import Dialogue
from dialoom.errors import (
    BadInput,
    DataError,
    DialoomError,
    EngineRefused,
    Interrupted,
    LimitReached,
    StorageError,
)
from dialoom.faults import fault_point
from dialoom.logs import log_to
from dialoom.method import Method
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import EngineClient, Pool
from dialoom.runtime.cluster import own_process_group
from dialoom.runtime.folder import open_folder
from dialoom.runtime.gate import Gate
from dialoom.runtime.pending import UNWRITABLE, Finished, Pending, together
from dialoom.runtime.plan import Plan, Variant
from dialoom.runtime.recorded import answers_used
from dialoom.runtime.replicas import HostedReplica, LocalReplica, Replica
from dialoom.runtime.unit_context import Row, UnitContext, dialogue_facts, error_fields
from dialoom.schema import Schema
from dialoom.text import printable, storable
from dialoom.unit import UnitKey

log = logging.getLogger(__name__)

PART_UNITS = 256
"""A part is committed at the latest when it holds so many units."""
BATCH_UNITS = 4
"""Rows become Arrow columns so many units at a time: cheap enough a row, and too short to make calls wait."""
GARBAGE_OBJECTS = 50_000
"""New objects after which Python looks for cycles; its own 700 costs a tenth of a busy worker's time."""
REPORT_S = 0.5
FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class Lease:
    """Units of one dialogue. ``dialogue`` is its JSON, or the reason why there is none.

    ``close`` set means: do not run, only write the row with this outcome.
    """

    dialogue: bytes | BadInput
    units: tuple[UnitKey, ...]
    content_hash: str
    close: Outcome | None = None
    losses: int = 0
    """Workers that were lost while they held it."""
    recorded: tuple[str, ...] = ()
    """Their segments of the call log: what they were answered is not paid again."""
    reason: DialoomError | None = None
    """Why it is closed."""


@dataclass(slots=True)
class Report:
    """What changed since the last report. ``done`` are committed units with their outcomes."""

    done: list[tuple[UnitKey, Outcome]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    room: int = 0
    """Units the worker would take in now."""
    running: int = 0
    fatal: DialoomError | None = None
    """An error that every further unit would meet too."""
    last_error: str = ""
    trouble: str = ""
    """A problem that the worker is trying to get over, for the progress line."""


def _settle() -> None:
    """What would hold up the first calls is done before them."""
    parts.batches({"dialogues": [{**UnitKey("", "", "", 0)._asdict(), "outcome": "", "n_calls": 0}]})  # Arrow's imports
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 50)


def segment_name(epoch: int, worker: str) -> str:
    """Name of a worker's segment of the call log."""
    return f"{epoch:05d}-{worker}"


class Worker:
    """Made a Ray actor by the driver; plain Python otherwise. ``place`` is its number and the number of all workers."""

    def __init__(
        self,
        plan: Plan,
        folder: str,
        epoch: int,
        name: str,
        hosts: Mapping[str, Sequence[Any]],
        *,
        place: tuple[int, int] = (0, 1),
        index: str = "",
    ) -> None:
        self._plan = plan
        self._folder = open_folder(folder)
        self._epoch = epoch
        self._name = name
        self._hosts = hosts
        self._place = place
        self._index = index
        self._schemas: dict[tuple[str, ...], Schema] = {(): plan.schema}
        self._variants: dict[tuple[str, str], tuple[Variant, Method]] = {}
        self._client: EngineClient | None = None
        self._log: CallLog | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._units: set[asyncio.Task[None]] = set()
        self._backlog: list[Lease] = []
        self._running = 0
        self._doubtful: list[tuple[UnitKey, UnitContext, Row]] = []
        self._unbatched: list[Finished] = []
        self._messages: dict[str, Any] = {}
        self._pending = Pending()
        self._written: set[str] = set()
        self._part = 0
        self._report = Report()
        self._trouble: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._committing = asyncio.Lock()
        self._drain_outcome = Outcome.INTERRUPTED
        self._turn_counts = {"turns": 0, "corrected": 0, "fallback": 0, "triggered": 0}

    async def start(self) -> dict[str, Any]:
        """Make the methods and the engines that live in this process, read the call logs.

        Raises the error that keeps it from working: not in ``__init__``, where Ray would hide it.
        """
        own_process_group()
        log_to(self._folder.path / "logs" / f"{self._name}.jsonl")
        for variant in self._plan.variants:
            plugin = registry.find("methods", variant.use)
            method = plugin.create(plugin.config.model_validate(variant.settings), self._plan.schema)
            self._variants[variant.method, variant.cell] = (variant, method)
        options = self._plan.options
        sources = [self._folder, *(open_folder(r) for r in self._plan.recorded)]
        index = self._folder.fetch(self._index) if self._index else None
        self._log = CallLog(self._folder, segment_name(self._epoch, self._name), sources, index=index)
        replayed = [open_folder(run) for engine in self._plan.engines.values() for run in engine.sources]
        if replayed:
            self._log.prefer(answers_used(replayed, self._log.repeated()))
        pools = {name: self._pool(name) for name in self._plan.engines}
        self._client = EngineClient(
            pools, self._log, max_attempts=options.run.max_attempts, backoff_s=options.run.backoff_s, seed=options.seed
        )
        await self._client.start()
        _settle()
        self._ticker = asyncio.create_task(self._tick())
        return {"pid": os.getpid(), "recorded_calls": len(self._log)}

    def _pool(self, name: str) -> Pool:
        spec = self._plan.engines[name]
        replicas: list[Replica] = []
        if spec.hosted:
            replicas += [HostedReplica(f"{name}/{i}", actor, self._name) for i, actor in enumerate(self._hosts[name])]
        else:
            plugin = registry.find("engines", spec.use)
            config = plugin.config.model_validate(spec.settings)
            for i in range(spec.replicas):
                engine = plugin.create(config, replica=i)
                gate = Gate(spec.in_flight_in(*self._place), adaptive=spec.adaptive)
                replicas.append(LocalReplica(f"{name}/{i}", engine, gate))
        return Pool(spec.identity, replicas, price=spec.price, replays=bool(spec.sources))

    async def exchange(self, leases: Sequence[Lease], *, drain: Outcome | None = None) -> Report:
        """Take ``leases``; report as soon as there is room for more, something failed, or half a second went by.

        With ``drain`` no new call is sent, calls under way are awaited, and every unit leased is committed with a row:
        its result where it is finished, else that outcome.
        """
        if self._ticker.done():
            self._ticker.result()  # nothing would be committed any more
        for segment in {s: None for lease in leases for s in lease.recorded}:
            await self._take_over(segment)
        for lease in leases:
            if lease.close is not None or isinstance(lease.dialogue, BadInput):
                self._close(lease, lease.close or Outcome.BAD_INPUT)
            else:
                self._backlog.append(lease)
        self._fill()
        if drain is not None:
            await self._drain(drain)
        elif not self._report.fatal and not (leases and self._hungry()):
            # Without leases there is nothing more to be had now: to answer at once would make a loop of questions.
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), REPORT_S)
        return self._take_report()

    async def _take_over(self, segment: str) -> None:
        assert self._log is not None
        try:
            await self._log.take_over(segment)
        except StorageError as error:  # its calls are paid again
            log.warning("the call log of a lost worker cannot be read: %s", error)

    def _room(self) -> int:
        waiting = sum(len(lease.units) for lease in self._backlog)
        return self._plan.leased_per_worker - self._running - waiting

    def _hungry(self) -> bool:
        """Whether the backlog is half used up: time to ask for more before it is empty."""
        return self._room() * 2 >= self._plan.leased_per_worker - self._plan.units_per_worker

    def _take_report(self) -> Report:
        report, self._report = self._report, Report(fatal=self._report.fatal)
        assert self._client is not None
        counts = asdict(self._client.counts)
        self._client.counts.__init__()  # type: ignore[misc]
        report.counts = {**counts, **self._turn_counts}
        self._turn_counts = dict.fromkeys(self._turn_counts, 0)
        report.trouble = "; ".join(self._trouble.values())
        report.room = max(0, self._room())
        report.running = self._running
        return report

    def _fill(self) -> None:
        while self._backlog and self._running < self._plan.units_per_worker:
            lease = self._backlog.pop(0)
            assert isinstance(lease.dialogue, bytes)
            dialogue = Dialogue.from_json(lease.dialogue)
            for key in lease.units:
                self._running += 1
                task = asyncio.create_task(self._run(key, dialogue, lease.content_hash))
                self._units.add(task)
                task.add_done_callback(self._units.discard)

    async def _run(self, key: UnitKey, dialogue: Dialogue, content_hash: str) -> None:
        """One unit, from its first call to its rows; whatever happens becomes an outcome."""
        from dialoom.reader import check_against

        assert self._client is not None
        started = time.time()
        variant, method = self._variants[key.method, key.cell]
        context = UnitContext(self._plan, variant, key, dialogue, self._schema_for(dialogue), self._client)
        outcome: Outcome | None = None
        error: DialoomError | None = None
        problems = check_against(dialogue, self._plan.schema)
        if problems:
            outcome = Outcome.BAD_INPUT
            error = DataError(
                problems[0], where=dialogue.source, hint=f"{len(problems)} such problems in this dialogue."
            )
        else:
            try:
                await method.run(dialogue, context)
            except Interrupted as interrupted:
                outcome, error = self._drain_outcome, interrupted
            except asyncio.CancelledError:
                outcome, error = self._drain_outcome, Interrupted("the run stopped before this call was answered")
            except LimitReached as limit:
                outcome, error = (Outcome.UNIT_LIMIT if limit.scope == "unit" else Outcome.JOB_LIMIT), limit
            except DialoomError as failure:
                outcome, error = Outcome.INFRASTRUCTURE, failure
                if isinstance(failure, EngineRefused):
                    self._report.fatal = failure
                    self._wake.set()
            except (Exception, SystemExit) as bug:  # noqa: BLE001 - a method's bug costs its unit, never the run
                outcome, error = Outcome.INFRASTRUCTURE, self._method_error(key, bug)
        extra = {"started_at": int(started * 1e6), "in_flight": self._running, "content_hash": content_hash}
        if outcome is None and self._client.doubtful(context.refused_by):
            self._doubtful.append((key, context, extra))
        else:
            self._end(key, context, outcome, error, extra)
        self._running -= 1
        self._fill()
        if self._hungry():
            self._wake.set()

    def _end(
        self, key: UnitKey, context: UnitContext, outcome: Outcome | None, error: DialoomError | None, extra: Row
    ) -> None:
        try:
            rows = context.rows(outcome, error, extra)
        except Exception as bug:  # noqa: BLE001 - the method reported what is no turn
            rows = {"dialogues": [self._row_of_bug(key, extra, bug)]}
        self._finish(key, rows, context.messages)

    def _decide(self) -> None:
        """End the units in doubt: an engine refused their calls, and has answered no other so far.

        They stand as they are once it answers, or nothing else runs and its words mean these calls only. Where the run
        stops they are owed, for it may be the engine's settings that are wrong.
        """
        assert self._client is not None
        doubtful, self._doubtful = self._doubtful, []
        fatal = self._report.fatal = self._report.fatal or (None if self._running else self._client.unsure())
        for key, context, extra in doubtful:
            if fatal is not None:
                self._end(key, context, Outcome.INFRASTRUCTURE, fatal, extra)
            elif self._client.draining.is_set():
                stopped = Interrupted("the run stopped before this unit's engine had answered any call")
                self._end(key, context, self._drain_outcome, stopped, extra)
            elif self._running and self._client.doubtful(context.refused_by):
                self._doubtful.append((key, context, extra))
            else:
                self._end(key, context, None, None, extra)

    def _method_error(self, key: UnitKey, bug: BaseException) -> DialoomError:
        """A method's bug as the error of its unit."""
        log.error("method %s failed on %s", key.method, printable(key.dialogue_id, 80), exc_info=bug)
        hint = f"See logs/{self._name}.jsonl."
        error = DialoomError(f"{type(bug).__name__}: {bug}", where=f"method {key.method}", hint=hint)
        error.__dict__["kind"] = "method"
        return error

    def _row_of_bug(self, key: UnitKey, extra: Row, bug: BaseException) -> Row:
        """The only row of a unit whose method reported what cannot be written."""
        what = error_fields(self._method_error(key, bug))
        row = {**key._asdict(), "outcome": Outcome.INFRASTRUCTURE.value, "n_calls": 0, **extra, **what}
        row["dialogue_id"] = storable(key.dialogue_id)
        return row

    def _schema_for(self, dialogue: Dialogue) -> Schema:
        known = self._schemas.get(dialogue.services)
        if known is None:
            known = self._schemas[dialogue.services] = self._plan.schema.subset(dialogue.services)
        return known

    def _close(self, lease: Lease, outcome: Outcome) -> None:
        """Rows for units that are not run: bad input, or a run that stops."""
        if isinstance(lease.dialogue, BadInput):
            bad = lease.dialogue
            facts: Row = {"source": storable(bad.where), "has_gold": False}
            error: DialoomError = DataError(bad.what, where=bad.where, hint=bad.hint)
        else:
            facts = dialogue_facts(Dialogue.from_json(lease.dialogue))
            error = lease.reason or Interrupted("the run stopped before this unit began")
        for key in lease.units:
            row = {
                **key._asdict(),
                "outcome": outcome.value,
                **facts,
                "content_hash": lease.content_hash,
                "n_calls": 0,
                **error_fields(error),
            }
            row["dialogue_id"] = storable(key.dialogue_id)
            self._finish(key, {"dialogues": [row]}, {})

    def _finish(self, key: UnitKey, rows: dict[str, list[Row]], messages: Mapping[str, Any]) -> None:
        dialogue = rows["dialogues"][0]
        if dialogue.get("error") and dialogue["outcome"] == Outcome.INFRASTRUCTURE:
            self._report.last_error = printable(dialogue["error"], 200)
        dialogue |= {"worker": self._name, "epoch": self._epoch, "finished_at": int(time.time() * 1e6)}
        for message_id, message in messages.items():
            if message_id not in self._written:
                self._messages[message_id] = message
        self._unbatched.append((key, Outcome(dialogue["outcome"]), rows))
        if len(self._unbatched) >= BATCH_UNITS:
            self._batch()
        counts = self._turn_counts
        for turn in rows.get("turns", ()):
            counts["turns"] += 1
            counts["corrected"] += turn.get("outcome") == Outcome.CORRECTED
            counts["fallback"] += turn.get("outcome") == Outcome.FALLBACK
            counts["triggered"] += bool(turn.get("fired"))
        if len(self._pending.done) >= PART_UNITS and not self._committing.locked():
            self._soon(self._commit())

    def _batch(self) -> None:
        """Rows so far become columns."""
        finished, messages = self._unbatched, self._messages
        self._unbatched, self._messages = [], {}
        new = {i: m for i, m in messages.items() if i not in self._written and i not in self._pending.message_ids}
        said = [
            {"message_id": i, "role": storable(str(m.role)), "content": storable(str(m.content))}
            for i, m in new.items()
        ]
        try:
            made = parts.batches(together(finished) | {"messages": said})
        except UNWRITABLE:
            finished = [self._writable(f) for f in finished]
            made = parts.batches(together(finished) | {"messages": said})
        self._pending.done += [(key, outcome) for key, outcome, _ in finished]
        self._pending.message_ids |= new.keys()
        for table, found in made.items():
            self._pending.batches.setdefault(table, []).extend(found)

    def _writable(self, finished: Finished) -> Finished:
        """The unit as it is, or, where the method's values do not fit the tables, with one row that says so."""
        key, _, rows = finished
        try:
            parts.batches(rows)
        except UNWRITABLE as bug:
            kept = ("content_hash", "started_at", "finished_at", "in_flight", "worker", "epoch")
            extra = {name: rows["dialogues"][0].get(name) for name in kept}
            return key, Outcome.INFRASTRUCTURE, {"dialogues": [self._row_of_bug(key, extra, bug)]}
        return finished

    def _soon(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        """Commit and flush at their intervals."""
        commit_s = self._plan.options.run.commit_s
        last = started = time.monotonic()
        while True:
            await asyncio.sleep(min(FLUSH_S, commit_s))
            now = time.monotonic()
            due = now - last >= parts.interval_s(commit_s, now - started)
            last = now if due else last
            # Shielded: a write that is under way when the worker stops goes on, and the last ones wait for it.
            await asyncio.shield(self._commit() if due else self._flush())

    async def _flush(self) -> bool:
        """Whether every answer so far is safe on disk."""
        assert self._log is not None
        try:
            await self._log.flush()
        except StorageError as error:
            self._trouble["call log"] = f"call log: {error}"
            return False
        self._trouble.pop("call log", None)
        return True

    async def _commit(self) -> None:
        """Write the finished units as one part, their calls first: a unit that is done can be replayed.

        On a storage error they are kept and tried again at the next tick.
        """
        async with self._committing:
            self._decide()
            self._batch()
            content, self._pending = self._pending, Pending()
            if not await self._flush():
                self._pending = content.followed_by(self._pending)
                return
            if not content.done:
                return
            name = parts.part_name(self._epoch, self._name, self._part)
            try:
                await asyncio.to_thread(lambda: self._folder.put(name, parts.encode(content.batches)))
            except StorageError as error:
                self._pending = content.followed_by(self._pending)
                self._trouble["results"] = f"results: {error}"
                return
            fault_point("committed")
            self._trouble.pop("results", None)
            self._part += 1
            if len(self._written) > 200_000:
                self._written.clear()
            self._written |= content.message_ids
            self._report.done += content.done

    async def _drain(self, outcome: Outcome) -> None:
        """End every leased unit: those under way after their call, those not begun at once."""
        assert self._client is not None
        self._drain_outcome = outcome
        self._client.drain()
        backlog, self._backlog = self._backlog, []
        for lease in backlog:
            self._close(lease, outcome)
        if self._units:
            _, late = await asyncio.wait(self._units, timeout=self._plan.options.limits.drain_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._commit()

    async def stop(self) -> Report:
        """Commit what is finished, close everything, and give the last report."""
        assert self._client is not None
        self._ticker.cancel()
        await self._commit()
        await self._client.close()
        if self._pending.done:
            self._trouble.setdefault("results", "finished units could not be committed")
        return self._take_report()
