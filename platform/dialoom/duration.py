"""How long a job will take: its calls as they came in a sample, through engines that slow down with their load.

A call takes ``base + output * (step + load * n) + prefill * uncached prompt tokens`` seconds where ``n`` calls are in
flight at its replica. The four figures are fitted to the sample's calls of each engine, none below zero; a sample's
calls meet many loads, because its dialogues end one after the other. The job is then played: its dialogues as chains of
calls, longest first, as many at once as the engines take. So the end, when few dialogues are left, counts as it will.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dialoom.unit import UnitKey

MOST_CALLS = 4_000
"""So many calls are played at most: some tenths of a second."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a call at one engine: see the module."""

    base: float
    step: float
    load: float
    prefill: float


@dataclass(frozen=True, slots=True)
class Work:
    """What one call asks of its engine. ``gap_s`` passes between the answer before it and its sending."""

    engine: str
    output_tokens: float
    uncached_tokens: float
    gap_s: float = 0.0


Chain = Sequence[Work]
"""The calls of one unit that reach an engine, one after the other."""


@dataclass(frozen=True, slots=True)
class Room:
    """Replicas of an engine, and the calls that each takes at once."""

    replicas: int
    in_flight: int


def fit(output_tokens: Floats, uncached_tokens: Floats, started: Floats, seconds: Floats, replicas: int = 1) -> Pace:
    """The pace of one engine from its calls: tokens, when each was sent and how long it took, in seconds.

    Least squares over all figures that are not negative. Raises ValueError without calls.
    """
    if not len(seconds):
        raise ValueError("a pace needs calls")
    beside = np.maximum(1.0, mean_in_flight(started, started + seconds) / replicas)
    columns = np.stack([np.ones_like(seconds), output_tokens, output_tokens * beside, uncached_tokens], axis=1)
    best, least = np.array([seconds.mean(), 0.0, 0.0, 0.0]), float(((seconds - seconds.mean()) ** 2).sum())
    for size in range(1, 5):
        for chosen in itertools.combinations(range(4), size):
            found, *_ = np.linalg.lstsq(columns[:, chosen], seconds, rcond=None)
            left = float(((seconds - columns[:, chosen] @ found) ** 2).sum())
            if (found >= 0).all() and left < least * (1 - 1e-9):
                best, least = np.zeros(4), left
                best[list(chosen)] = found
    return Pace(*(float(x) for x in best))


def mean_in_flight(started: Floats, ended: Floats) -> Floats:
    """For each call, how many calls (it included) were under way on the average of its time."""
    times = np.sort(np.concatenate([started, ended]))
    under_way = np.searchsorted(np.sort(started), times, "right") - np.searchsorted(np.sort(ended), times, "right")
    area = np.concatenate([[0.0], np.cumsum(under_way[:-1] * np.diff(times))])
    span = np.maximum(ended - started, 1e-9)
    found = (np.interp(ended, times, area) - np.interp(started, times, area)) / span
    return np.asarray(np.maximum(found, 1.0), dtype=np.float64)


def chains_of(calls: Sequence[Mapping[str, Any]]) -> dict[UnitKey, list[Work]]:
    """The calls of each unit that an engine answered, from rows with ``paid``; the others are left out.

    A pause in which a call was replayed counts as none: what it waited for was another unit's call.
    """
    units: dict[UnitKey, list[Mapping[str, Any]]] = {}
    for row in sorted(calls, key=lambda r: (r["turn"], r["call"])):
        units.setdefault(UnitKey(*(row[f] for f in UnitKey._fields)), []).append(row)
    return {key: _works(rows) for key, rows in units.items()}


def _works(rows: Sequence[Mapping[str, Any]]) -> list[Work]:
    found: list[Work] = []
    before: float | None = None
    for row in rows:
        if not row["paid"]:
            before = None
            continue
        sent = row["sent_at"].timestamp()
        gap = 0.0 if before is None else max(0.0, sent - before)
        uncached = (row["prompt_tokens"] or 0) - (row["cached_tokens"] or 0)
        found.append(Work(row["engine"], float(row["output_tokens"] or 0), float(max(0, uncached)), gap))
        before = sent + (row["latency_s"] or 0.0)
    return found


def play(chains: Sequence[Chain], paces: Mapping[str, Pace], rooms: Mapping[str, Room], units: int) -> float:
    """Seconds until all chains are through, at most ``units`` of them at once, in the order given."""
    state = _Playing(paces, rooms)
    waiting = deque(c for c in chains if c)
    for _ in range(min(units, len(waiting))):
        state.begin(waiting.popleft(), 0)
    while state.busy:
        for chain, at in state.advance():
            if at + 1 < len(chain):
                state.begin(chain, at + 1)
            elif waiting:
                state.begin(waiting.popleft(), 0)
    return state.now


class _Playing:
    """Calls under way: what each has still to do, as a share of the whole, and how long the whole would take."""

    def __init__(self, paces: Mapping[str, Pace], rooms: Mapping[str, Room]) -> None:
        self.now = 0.0
        self._paces = paces
        self._names = {name: i for i, name in enumerate(rooms)}
        self._replicas = np.array([float(r.replicas) for r in rooms.values()])
        self._places = [r.replicas * r.in_flight for r in rooms.values()]
        self._under_way = np.zeros(len(rooms))
        self._queues: list[deque[tuple[Chain, int]]] = [deque() for _ in rooms]
        self._pauses: list[tuple[float, int, Chain, int]] = []
        self._order = itertools.count()
        self._calls: list[tuple[Chain, int]] = []
        self._left, self._fixed, self._per_call = (np.zeros(0) for _ in range(3))
        self._engine = np.zeros(0, dtype=np.int64)

    @property
    def busy(self) -> bool:
        """Whether any call is under way or will be sent."""
        return bool(self._calls or self._pauses)

    def begin(self, chain: Chain, at: int) -> None:
        """Send a call after its pause, or let it wait until its engine has room."""
        if chain[at].gap_s > 0:
            heapq.heappush(self._pauses, (self.now + chain[at].gap_s, next(self._order), chain, at))
        else:
            self._send(chain, at)

    def _send(self, chain: Chain, at: int) -> None:
        engine = self._names[chain[at].engine]
        if self._under_way[engine] >= self._places[engine]:
            self._queues[engine].append((chain, at))
            return
        work, pace = chain[at], self._paces[chain[at].engine]
        self._under_way[engine] += 1
        self._calls.append((chain, at))
        fixed = pace.base + work.output_tokens * pace.step + work.uncached_tokens * pace.prefill
        self._left = np.append(self._left, 1.0)
        self._fixed = np.append(self._fixed, max(fixed, 1e-9))
        self._per_call = np.append(self._per_call, work.output_tokens * pace.load)
        self._engine = np.append(self._engine, engine)

    def advance(self) -> list[tuple[Chain, int]]:
        """Go on to the next end of a call or of a pause; returns the calls that ended."""
        until = self._pauses[0][0] if self._pauses else math.inf
        if not self._calls:
            self.now = until
            return self._resume()
        beside = np.maximum(1.0, (self._under_way / self._replicas)[self._engine])
        whole = self._fixed + self._per_call * beside
        step = float((self._left * whole).min())
        if self.now + step > until:
            self._left = self._left - (until - self.now) / whole
            self.now = until
            return self._resume()
        self.now += step
        self._left = self._left - step / whole
        over = self._left <= 1e-9
        ended = [call for call, gone in zip(self._calls, over, strict=True) if gone]
        for engine in self._engine[over]:
            self._under_way[engine] -= 1
        self._calls = [call for call, gone in zip(self._calls, over, strict=True) if not gone]
        stay = ~over
        self._left, self._fixed = self._left[stay], self._fixed[stay]
        self._per_call, self._engine = self._per_call[stay], self._engine[stay]
        for queue, places, engine in zip(self._queues, self._places, range(len(self._places)), strict=True):
            while queue and self._under_way[engine] < places:
                self._send(*queue.popleft())
        return ended

    def _resume(self) -> list[tuple[Chain, int]]:
        while self._pauses and self._pauses[0][0] <= self.now:
            _, _, chain, at = heapq.heappop(self._pauses)
            self._send(chain, at)
        return []
