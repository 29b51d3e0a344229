"""The feed: dialogues from the reader, as leases of the units that are still owed, longest first within a window."""

from __future__ import annotations

import heapq
import itertools
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput
from dialoom.runtime.index import Index
from dialoom.runtime.plan import Plan
from dialoom.runtime.worker import Lease
from dialoom.text import storable
from dialoom.unit import UnitKey

WINDOW = 10_000
WINDOW_BYTES = 12 << 20
"""The window holds so many dialogues, or so many compressed bytes: the driver's memory stays flat."""
READ_AHEAD_S = 0.03
"""So long a read may hold up the driver's loop."""


class Feed:
    """Hands out leases; takes back those of a worker that was lost.

    ``read`` counts dialogues read, ``skipped`` units found done, ``ended`` says the input is read to its end.
    """

    def __init__(self, plan: Plan, items: Iterator[Dialogue | BadInput], index: Index) -> None:
        self.read = 0
        self.units_read = 0
        self.skipped = 0
        self.ended = False
        self._plan = plan
        data = plan.options.data
        self._items = itertools.islice(itertools.islice(items, 0, None, data.stride), data.limit)
        self._index = index
        self._window: list[tuple[int, int, bytes | BadInput, str, tuple[UnitKey, ...]]] = []
        self._bytes = 0
        self._returned: list[Lease] = []
        self._numbers = itertools.count()

    def take(self, n_units: int) -> list[Lease]:
        """Leases of about ``n_units`` units; fewer at the end of the input, and while :attr:`searching`."""
        leases: list[Lease] = []
        self._read_ahead()
        while n_units > 0:
            lease = self._next()
            if lease is None:
                break
            leases.append(lease)
            n_units -= len(lease.units)
        return leases

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Units to hand out again, before all others; those that are done by now are left out."""
        for lease in leases:
            owed = tuple(self._index.owed(lease.units, lease.content_hash))
            if owed:
                self._returned.append(replace(lease, units=owed))

    @property
    def empty(self) -> bool:
        """Whether nothing is left to hand out."""
        self._read_one()
        return self.ended and not self._window and not self._returned

    def owes(self) -> bool:
        """Whether anything is left to hand out; reads on until that is known."""
        while self.searching:
            self._read_one()
        return not self.empty

    @property
    def searching(self) -> bool:
        """Whether nothing owed has been found yet in an input that goes on: take again, after others had their turn."""
        return not self.ended and not self._window and not self._returned

    def remaining(self) -> list[Lease]:
        """Everything in the window; the input is not read further."""
        self._items = itertools.islice((), 0)
        self.ended = True
        leases = []
        while (lease := self._next()) is not None:
            leases.append(lease)
        return leases

    def _next(self) -> Lease | None:
        if self._returned:
            return self._returned.pop()
        self._read_one()
        if not self._window:
            return None
        _, _, body, content_hash, units = heapq.heappop(self._window)
        if isinstance(body, bytes):
            self._bytes -= len(body)
            body = zlib.decompress(body)
        return Lease(body, units, content_hash)

    def _read_one(self) -> None:
        """Read until the window holds something or the input ends, for a short while: a resumed job may have millions
        of dialogues behind it before one is owed."""
        until = time.perf_counter() + READ_AHEAD_S
        while not self._window and not self.ended:
            self._read()
            if time.perf_counter() >= until:
                return

    def _read_ahead(self) -> None:
        """Fill the window for a short while, so that neither the first lease nor the driver's loop waits for long."""
        until = time.perf_counter() + READ_AHEAD_S
        while (
            not self.ended and len(self._window) < WINDOW and self._bytes < WINDOW_BYTES and time.perf_counter() < until
        ):
            self._read()

    def _read(self) -> None:
        item = next(self._items, None)
        if item is None:
            self.ended = True
        else:
            self._add(item)

    def _add(self, item: Dialogue | BadInput) -> None:
        self.read += 1
        dialogue_id = storable(item.dialogue_id)
        if not self._index.first_seen(dialogue_id, good=isinstance(item, Dialogue)):
            item = self._repeated(item, dialogue_id)
            dialogue_id = item.dialogue_id
        body: bytes | BadInput
        if isinstance(item, Dialogue):
            content_hash, body, weight = item.content_hash(), item.to_json(), sum(len(t.text) for t in item.turns)
        else:
            content_hash, body, weight = item.content_hash or storable(item.what), item, 0
        units = self._plan.units(dialogue_id)
        self.units_read += len(units)
        owed = self._index.owed(units, content_hash)
        self.skipped += len(units) - len(owed)
        if not owed:
            return
        if isinstance(body, bytes):
            body = zlib.compress(body, 1)
            self._bytes += len(body)
        heapq.heappush(self._window, (-weight, next(self._numbers), body, content_hash, tuple(owed)))

    def _repeated(self, item: Dialogue | BadInput, dialogue_id: str) -> Dialogue | BadInput:
        """``item``, whose id was read before, under a free id that says so (``id~2``).

        A dialogue is run if no other that could be read had its id, and is a bad input else. A bad record keeps its
        own fault.
        """
        runs = isinstance(item, Dialogue) and self._index.first_good(dialogue_id)
        numbered = (f"{dialogue_id}~{number}" for number in itertools.count(2))
        new_id = next(name for name in numbered if self._index.first_seen(name, good=False))
        if runs or isinstance(item, BadInput):
            return replace(item, dialogue_id=new_id)
        return BadInput(
            new_id,
            item.source,
            f"dialogue id '{dialogue_id}' was read before",
            "Give every dialogue its own id; this one was not run.",
            item.content_hash(),
        )
