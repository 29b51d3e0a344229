"""The one way from a unit to a model: call log, choice of replica, retries, counts.

Everything that is retried is retried here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dialoom.engine import EngineIdentity, Request, Response
from dialoom.errors import (
    DialoomError,
    EngineBusy,
    EngineCrashed,
    EngineDown,
    EngineError,
    EngineRefused,
    Interrupted,
    LimitReached,
    NotRecorded,
    PoisonCall,
    PromptTooLong,
    RequestRefused,
    StorageError,
)
from dialoom.faults import fault_point
from dialoom.prices import Price
from dialoom.runtime.calllog import CallLog, Digests, kept, late_key
from dialoom.runtime.replicas import Replica

LONGEST_WAIT_S = 60.0
REPLACE_WAIT_S = 600.0
"""How long a call waits for a dead replica's successor before its unit ends as ``infrastructure``."""
START_S = 240.0
"""So long a worker tries to reach an engine none of whose endpoints is there: less than its driver waits for it."""
STICKY_LIMIT = 20_000
SUSPECT_CRASHES = 2
"""A call that was under way in so many crashes of an engine is suspect: a replica runs one such call at a time."""
POISON_CRASHES = 4
"""A call that was under way in so many crashes is given up."""
SHUN_S = 2.0
"""So long a replica that could not be reached gets no calls while others can; doubled each time, up to a minute."""
REFUSED_IN_A_ROW = 20
"""So many different calls, refused one after the other, tell of the engine and not of the calls."""


@dataclass(slots=True)
class Counts:
    """What the driver adds up over workers; all since the last report."""

    calls: int = 0
    replayed: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    waiting_s: float = 0.0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response and how it came. ``latency_s`` is wall time of the last try, 0 where it was replayed."""

    response: Response
    digest: str
    replayed: bool
    sent_at: float
    latency_s: float


@dataclass
class Pool:
    """The replicas of one engine."""

    identity: EngineIdentity
    replicas: list[Replica]
    sticky: dict[str, int] = field(default_factory=dict)
    price: Price | None = None
    replays: bool = False
    """Whether it gives recorded answers only."""
    _shunned: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Replica to its failures in a row and the time until which it is left alone."""
    _answered: set[str] = field(default_factory=set)
    """Replicas that answered a call of this worker."""
    _refused: dict[str, set[bytes]] = field(default_factory=dict)
    """Replica to the digests of the calls it refused since its last answer."""
    _row_from: int = 0
    """Number of the call that was sent last when the first of these was refused."""
    _n_sent: int = 0
    _under_way: dict[int, str] = field(default_factory=dict)
    """Number of each call to the replica that has it."""
    unsure: EngineRefused | None = None
    """A refusal that may be meant for all calls, of an engine that has answered none."""

    def pick(self, dialogue_id: str) -> Replica | None:
        """The replica that served the dialogue before (its prefix cache is warm), else the least loaded one."""
        index = self.sticky.get(dialogue_id)
        if index is not None and self._good(self.replicas[index]):
            return self.replicas[index]
        up = [i for i, r in enumerate(self.replicas) if r.up]
        if not up:
            return None
        good = [i for i in up if self._good(self.replicas[i])] if self._shunned else up
        index = min(good or up, key=lambda i: self.replicas[i].load)
        if len(self.replicas) > 1:
            if len(self.sticky) >= STICKY_LIMIT:
                self.sticky.clear()
            self.sticky[dialogue_id] = index
        return self.replicas[index]

    async def start(self) -> EngineDown | None:
        """Start all replicas; None as soon as one of them is up. Raises what is no EngineDown."""
        ends = await asyncio.gather(*(r.start() for r in self.replicas), return_exceptions=True)
        down = [(r, e) for r, e in zip(self.replicas, ends, strict=True) if isinstance(e, EngineDown)]
        for error in ends:
            if error is not None and not isinstance(error, EngineDown):
                raise error
        if len(down) == len(self.replicas):
            return down[0][1]
        for replica, _ in down:
            self.failed(replica)
        return None

    def _good(self, replica: Replica) -> bool:
        if not replica.up:
            return False
        return not self._shunned or self._shunned.get(replica.name, (0, 0.0))[1] <= time.monotonic()

    def failed(self, replica: Replica) -> None:
        """A call did not reach the replica: others are taken for a while."""
        failures = self._shunned.get(replica.name, (0, 0.0))[0] + 1
        wait_s = min(SHUN_S * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_S)
        self._shunned[replica.name] = failures, time.monotonic() + wait_s

    def answered(self, replica: Replica) -> None:
        """The replica answers."""
        self._answered.add(replica.name)
        if self._refused:
            self._refused.pop(replica.name, None)
            self.unsure = None
        if self._shunned:
            self._shunned.pop(replica.name, None)

    @property
    def doubtful(self) -> bool:
        """Whether it has refused calls, and answered none."""
        return bool(self._refused) and not self._answered

    async def ask(self, replica: Replica, request: Request, *, suspect: bool) -> Response:
        """The replica's one try; the pool knows what is under way. Raises what the replica raises."""
        number = self._n_sent = self._n_sent + 1
        self._under_way[number] = replica.name
        try:
            return await replica.generate(request, suspect=suspect)
        finally:
            del self._under_way[number]

    def refused(
        self, replica: Replica, digest: bytes, error: EngineRefused | RequestRefused, *, before: bool
    ) -> EngineRefused | RequestRefused:
        """What the refusal of a call means: EngineRefused, that no call will pass; RequestRefused, that this one won't.

        A replica that answers others means this call. It is wrong as a whole where its endpoint is certain of that, or
        where REFUSED_IN_A_ROW different calls in a row were refused and none is left that was sent before them: slow
        answers may be on their way. Calls that were refused ``before``, in an earlier run, say nothing of the engine.
        """
        if isinstance(error, EngineRefused) and error.certain:
            return error
        if not self._refused:
            self._row_from = self._n_sent
        refused = self._refused.setdefault(replica.name, set())
        if len(refused) < REFUSED_IN_A_ROW and not before:
            refused.add(digest)
        answers = replica.name in self._answered
        if isinstance(error, EngineRefused):
            if not answers and not before:
                self.unsure = error
            whole, own = error, RequestRefused(error.what, where=error.where, hint=error.hint)
        else:
            if answers:
                return error
            what = f"no call was answered, and {REFUSED_IN_A_ROW} were refused: {error.what}"
            whole, own = EngineRefused(what, where=error.where, hint=error.hint), error
        return whole if self._refuses_all(replica) else own

    def _refuses_all(self, replica: Replica) -> bool:
        """Whether so many calls in a row were refused by the replica, or by all where none answered so far."""
        alone = bool(self._answered)
        refused = self._refused[replica.name] if alone else set().union(*self._refused.values())
        if len(refused) < REFUSED_IN_A_ROW:
            return False
        asked = (n for n, name in self._under_way.items() if not alone or name == replica.name)
        return all(n > self._row_from for n in asked)


class _Abandoned(Exception):
    """Whoever had sent the call gave it up; one of those who wait for it sends it again."""


class EngineClient:
    """All engines of a job, for the units of one worker."""

    def __init__(
        self, pools: Mapping[str, Pool], log: CallLog, *, max_attempts: int, backoff_s: float, seed: int
    ) -> None:
        self.counts = Counts()
        self.digests = Digests({name: pool.identity for name, pool in pools.items()})
        self.draining = asyncio.Event()
        self._pools = pools
        self._log = log
        self._max_attempts = max_attempts
        self._backoff_s = backoff_s
        self._random = random.Random(seed)
        self._under_way: dict[bytes, asyncio.Future[Response]] = {}

    async def start(self) -> None:
        """Start the engines that live in this worker. A replica that is down joins later, if another of its pool is up.

        Raises the EngineDown of an engine none of whose replicas starts, after the usual tries; else what refuses.
        """
        for pool in self._pools.values():
            tries, until = 0, time.monotonic() + START_S
            while down := await pool.start():
                tries += 1
                if tries >= self._max_attempts or time.monotonic() > until:
                    raise down
                await self._pause(down, tries)

    def doubtful(self, engines: Iterable[str]) -> bool:
        """Whether one of them has refused calls of this worker, and answered none."""
        return any(self._pools[engine].doubtful for engine in engines)

    def unsure(self) -> EngineRefused | None:
        """A refusal that may be meant for all calls, by an engine that has answered none."""
        return next((pool.unsure for pool in self._pools.values() if pool.unsure), None)

    def model(self, engine: str) -> str:
        """Name of the model behind an engine."""
        return self._pools[engine].identity.model

    async def call(self, engine: str, request: Request, message_ids: Sequence[str]) -> Answer:
        """The answer to ``request``: from the log, from the same call under way, or from a replica.

        Raises EngineError kinds after the last try, and Interrupted while the run drains.
        """
        digest = self.digests.call(engine, request, message_ids)
        stored = self._log.get(digest, request.address)
        while stored is None and (running := self._under_way.get(digest)) is not None:
            with contextlib.suppress(_Abandoned):
                stored = await asyncio.shield(running)
        if stored is not None:
            self.counts.replayed += 1
            return Answer(replace(stored, replica="log"), digest.hex(), True, time.time(), 0.0)
        if self.draining.is_set():
            raise Interrupted("the run is stopping; this call was not sent")
        future = self._under_way[digest] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._sent(engine, digest, request)
        except BaseException as error:
            future.set_exception(error if isinstance(error, DialoomError) else _Abandoned())
            future.exception()  # nobody may be waiting: that is no warning
            raise
        finally:
            del self._under_way[digest]
        future.set_result(answer.response)
        return answer

    async def _sent(self, engine: str, digest: bytes, request: Request) -> Answer:
        pool = self._pools[engine]
        attempt = tries = crashes = 0
        while True:
            attempt += 1
            replica = await self._replica(pool, request.address.dialogue_id)
            try:
                sent_at, started = time.time(), time.perf_counter()
                response = await pool.ask(replica, request, suspect=crashes >= SUSPECT_CRASHES)
                break
            except EngineCrashed as error:
                crashes += error.under_way
                if crashes >= POISON_CRASHES:
                    raise _poison(crashes, replica, attempt) from error
                self._check_draining()
                self.counts.retries += 1
            except NotRecorded as error:
                raise self._log.refusal(digest) or error from None
            except (PromptTooLong, RequestRefused, EngineRefused) as error:
                meant = error
                if not isinstance(error, PromptTooLong):
                    before = isinstance(self._log.refusal(digest), RequestRefused)
                    meant = pool.refused(replica, digest, error, before=before)
                meant.__dict__["attempts"] = attempt
                if not isinstance(meant, EngineRefused):
                    self._log.refuse(digest, meant)
                raise meant from None
            except EngineError as error:
                tries += 1
                error.__dict__["attempts"] = attempt
                if isinstance(error, EngineDown):
                    pool.failed(replica)
                if not error.retriable or tries >= self._max_attempts:
                    raise
                self._check_draining()
                self.counts.retries += 1
                await self._pause(error, tries)
        pool.answered(replica)
        latency_s = time.perf_counter() - started
        response = kept(response, attempts=attempt, replica=replica.name)
        fault_point("answer")
        self._log.append(digest, response, engine)
        counts, usage = self.counts, response.usage
        counts.calls += 1
        counts.prompt_tokens += usage.prompt_tokens
        counts.cached_tokens += usage.cached_tokens
        counts.output_tokens += usage.output_tokens
        if pool.price is not None:
            counts.cost_usd += pool.price.of(usage)
        if replica.crowded:
            await _others_first()
        return Answer(response, digest.hex(), False, sent_at, latency_s)

    async def _replica(self, pool: Pool, dialogue_id: str) -> Replica:
        replica = pool.pick(dialogue_id)
        if replica is not None:
            return replica
        waits: list[asyncio.Task[object]] = [asyncio.create_task(r.wait_up(REPLACE_WAIT_S)) for r in pool.replicas]
        drained: asyncio.Task[object] = asyncio.create_task(self.draining.wait())
        started = time.perf_counter()
        try:
            while replica is None and waits and not drained.done():
                self._check_alive(pool)
                await asyncio.wait([drained, *waits], return_when=asyncio.FIRST_COMPLETED)
                # A replica that is given up does not end the wait for the others.
                waits = [wait for wait in waits if not wait.done()]
                replica = pool.pick(dialogue_id)
        finally:
            for wait in [drained, *waits]:
                wait.cancel()
            self.counts.waiting_s += time.perf_counter() - started
        self._check_draining()
        if replica is None:
            self._check_alive(pool)
            raise EngineError(
                f"no replica came back within {REPLACE_WAIT_S:.0f} s",
                where=pool.identity.model,
                hint="See the engine's log; run the same command again to go on.",
            )
        return replica

    def _check_draining(self) -> None:
        if self.draining.is_set():
            raise Interrupted("the run is stopping; this call was not sent again")

    def _check_alive(self, pool: Pool) -> None:
        failed = [r.failed for r in pool.replicas if r.failed is not None]
        if len(failed) == len(pool.replicas):
            raise EngineRefused(
                f"every replica is gone: {failed[0]}", where=pool.identity.model, hint="Run 'dialoom doctor'."
            )

    async def _pause(self, error: EngineError, attempt: int) -> None:
        """Wait before the next try: as the endpoint asks, else doubling with jitter; never while draining."""
        self._check_draining()
        wait_s = self._backoff_s * 2.0 ** min(attempt - 1, 30) * (0.5 + self._random.random())
        if isinstance(error, EngineBusy) and error.retry_after_s is not None:
            wait_s = error.retry_after_s
        wait_s = min(wait_s, LONGEST_WAIT_S)
        if wait_s <= 0:
            return
        self.counts.waiting_s += wait_s
        try:
            await asyncio.wait_for(self.draining.wait(), wait_s)
        except TimeoutError:
            return
        self._check_draining()

    def refused(self, engine: str, request: Request, message_ids: Sequence[str], error: LimitReached) -> None:
        """Keep in the log that this unit did not wait for the call: its replay ends there too."""
        self._log.refuse(late_key(self.digests.call(engine, request, message_ids), request.address), error)

    def late(self, engine: str, request: Request, message_ids: Sequence[str]) -> DialoomError | None:
        """In a replay: why the recorded unit did not wait for the call, if it did not."""
        if not self._pools[engine].replays:
            return None
        return self._log.refusal(late_key(self.digests.call(engine, request, message_ids), request.address))

    def drain(self) -> None:
        """Send no new call from now on; those that wait for their turn raise Interrupted."""
        self.draining.set()
        for pool in self._pools.values():
            for replica in pool.replicas:
                replica.drain()

    async def close(self) -> None:
        """Close this worker's ends; flush the log. Where that fails, the last commit failed too and said so."""
        for pool in self._pools.values():
            for replica in pool.replicas:
                await replica.close()
        with contextlib.suppress(StorageError):
            await self._log.flush()


async def _others_first() -> None:
    """Let calls that were just let in be sent before this one's answer is worked on: a place left empty for as long as
    that takes, times the answers that came together, is engine time lost. In the first round the other answers of this
    moment let in theirs, in the second those are sent."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _poison(crashes: int, replica: Replica, attempts: int) -> PoisonCall:
    error = PoisonCall(
        f"the engine's process ended {crashes} times while it answered this call",
        where=replica.name,
        hint="Other calls go on; look at this dialogue's prompt and the engine's log.",
    )
    error.__dict__["attempts"] = attempts
    return error
