"""``dialoom bench policies``: what each scheduling policy is worth, by replaying a run's calls in a simulated engine.

The calls are those of a finished run, each dialogue a chain of them. Replicas have a number of slots and a prefix cache
of limited size (least recently used blocks go first); a call takes time for uncached prompt tokens and output tokens.
The model ranks policies on one workload; it does not predict seconds.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dialoom.errors import JobError
from dialoom.runtime.feed import WINDOW
from dialoom.runtime.folder import RunFolder
from dialoom.traces.read import messages as read_messages
from dialoom.traces.read import read_table

BLOCK_TOKENS = 16
CHARACTERS_A_TOKEN = 4
"""A run of the scripted engine has no tokenizer; prompts are cut by characters."""


@dataclass(frozen=True, slots=True)
class SimCall:
    """A call: identifiers of its prompt's blocks (each stands for itself and all before it), and output tokens."""

    blocks: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Chain:
    """One dialogue: its services, its length in characters, its calls one after the other."""

    services: tuple[str, ...]
    weight: int
    calls: tuple[SimCall, ...]


@dataclass(frozen=True)
class Setup:
    """Replicas, calls in flight in each, prompt tokens that one cache holds, and what a token costs in seconds."""

    replicas: int = 4
    in_flight: int = 64
    cache_tokens: int = 50_000
    prompt_token_s: float = 1 / 20_000
    output_token_s: float = 1 / 40


@dataclass(frozen=True)
class Policy:
    """Which dialogue comes next, and where a call goes."""

    order: Literal["longest", "read"] = "longest"
    grouped: bool = False
    """Dialogues of the same services one after the other, in either order."""
    sticky: bool = True
    """A dialogue stays with its replica."""
    least_loaded: bool = True
    """Else replicas take turns."""


POLICIES = {
    "as dialoom runs": Policy(),
    "input order": Policy(order="read"),
    "grouped by service": Policy(grouped=True),
    "not sticky": Policy(sticky=False),
    "replicas in turn": Policy(least_loaded=False),
    "replicas in turn, not sticky": Policy(sticky=False, least_loaded=False),
}


@dataclass(frozen=True)
class Simulated:
    """What a policy came to. ``time`` is relative to the first policy of the table; lower is better."""

    policy: str
    time: float
    cached_share: float
    slots_busy: float


def policies(folder: RunFolder, setup: Setup, *, window: int = WINDOW) -> list[Simulated]:
    """Every policy on the calls of a finished run. Raises JobError where it has none."""
    chains = read_chains(folder)
    found = {name: simulate(chains, setup, policy, window) for name, policy in POLICIES.items()}
    first = next(iter(found.values())).seconds
    return [Simulated(n, r.seconds / first, r.cached_share, r.slots_busy) for n, r in found.items()]


def read_chains(folder: RunFolder) -> list[Chain]:
    """The dialogues of a run by id, the order of most inputs. Raises JobError."""
    import pyarrow.dataset as ds

    where = ~ds.field("finish_reason").isin(["error", "vectors"])
    columns = ["dialogue_id", "turn", "call", "method", "cell", "trial", "message_ids", "output_tokens"]
    rows = read_table(folder.path, "calls", columns, where).to_pylist()
    if not rows:
        raise JobError("the run has no calls", where=str(folder), hint="Give a finished run.")
    texts = read_messages(folder.path, [i for r in rows for i in r["message_ids"] or []])
    units: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda r: (r["turn"], r["call"])):
        units.setdefault(tuple(str(row[c]) for c in ("dialogue_id", "method", "cell", "trial")), []).append(row)
    dialogues = read_table(folder.path, "dialogues", ["dialogue_id", "services"]).to_pylist()
    services = {r["dialogue_id"]: tuple(r["services"] or ()) for r in dialogues}
    blocks = _Blocks()

    def call_of(row: dict[str, Any]) -> SimCall:
        prompt = "\0".join(f"{role}\1{text}" for role, text in (texts[i] for i in row["message_ids"]))
        return SimCall(blocks.of(prompt), row["output_tokens"] or 0)

    chains = []
    for key in sorted(units):
        calls = tuple(map(call_of, units[key]))
        chains.append(Chain(services.get(key[0], ()), sum(len(c.blocks) for c in calls), calls))
    return chains


class _Blocks:
    """Numbers for prompt blocks; equal numbers mean equal text up to and with that block."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def of(self, prompt: str) -> tuple[int, ...]:
        size, parent, found = BLOCK_TOKENS * CHARACTERS_A_TOKEN, b"", []
        for start in range(0, len(prompt) - len(prompt) % size, size):
            text = prompt[start : start + size].encode("utf-8", "backslashreplace")
            parent = hashlib.blake2b(parent + text, digest_size=16).digest()
            found.append(self._numbers.setdefault(parent, len(self._numbers)))
        return tuple(found)


@dataclass
class _Replica:
    room: int
    capacity: int
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    waiting: deque[tuple[int, SimCall]] = field(default_factory=deque)
    load: int = 0

    def served(self, blocks: Sequence[int]) -> int:
        """Blocks of the prompt that lie in the cache; all of them lie there afterwards."""
        hits = sum(1 for _ in itertools.takewhile(self.cache.__contains__, blocks))
        for block in blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.capacity:
            self.cache.popitem(last=False)
        return hits


@dataclass
class Result:
    """Figures of one simulation. ``slots_busy`` is the share of all slots' time in which they answered."""

    seconds: float = 0.0
    blocks: int = 0
    cached: int = 0
    busy_s: float = 0.0
    slots: int = 1

    @property
    def cached_share(self) -> float:
        """Prompt blocks served from a cache, of all."""
        return self.cached / max(1, self.blocks)

    @property
    def slots_busy(self) -> float:
        """See the class."""
        return self.busy_s / max(self.seconds * self.slots, 1e-12)


def simulate(chains: Sequence[Chain], setup: Setup, policy: Policy, window: int = WINDOW) -> Result:
    """Run all chains to their end; as many units are in work as dialoom has, half as many again as slots."""
    return _Simulation(setup, policy).run(ordered(chains, policy, window))


def ordered(chains: Sequence[Chain], policy: Policy, window: int) -> list[Chain]:
    """The order in which dialogues are begun: by length, and by service, within windows of the input."""
    out: list[Chain] = []
    for start in range(0, len(chains), window):
        part = list(chains[start : start + window])
        if policy.order == "longest":
            part.sort(key=lambda c: -c.weight)
        if policy.grouped:
            first = {c.services: i for i, c in reversed(list(enumerate(part)))}
            part.sort(key=lambda c: first[c.services])
        out += part
    return out


class _Simulation:
    """Events in time: calls end, the next call of the chain or the next chain begins."""

    def __init__(self, setup: Setup, policy: Policy) -> None:
        self._setup = setup
        self._policy = policy
        capacity = setup.cache_tokens // BLOCK_TOKENS
        self._replicas = [_Replica(setup.in_flight, capacity) for _ in range(setup.replicas)]
        self._turns = itertools.cycle(range(setup.replicas))
        self._home: dict[int, int] = {}
        self._ends: list[tuple[float, int, int, int]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self._result = Result(slots=setup.replicas * setup.in_flight)

    def run(self, chains: Iterable[Chain]) -> Result:
        left = enumerate(chains)
        calls: dict[int, deque[SimCall]] = {}

        def begin() -> None:
            for number, chain in left:
                if chain.calls:
                    calls[number] = deque(chain.calls)
                    self._send(number, calls[number].popleft())
                    return

        for _ in range(int(self._result.slots * 1.5)):
            begin()
        while self._ends:
            self._now, _, number, place = heapq.heappop(self._ends)
            self._free(place)
            if calls[number]:
                self._send(number, calls[number].popleft())
            else:
                del calls[number]
                self._home.pop(number, None)
                begin()
        return replace(self._result, seconds=self._now)

    def _send(self, number: int, call: SimCall) -> None:
        place = self._home.get(number) if self._policy.sticky else None
        if place is None:
            loads = [r.load for r in self._replicas]
            place = loads.index(min(loads)) if self._policy.least_loaded else next(self._turns)
            self._home[number] = place
        replica = self._replicas[place]
        replica.load += 1
        if replica.room:
            self._start(place, number, call)
        else:
            replica.waiting.append((number, call))

    def _start(self, place: int, number: int, call: SimCall) -> None:
        replica, setup, result = self._replicas[place], self._setup, self._result
        replica.room -= 1
        hits = replica.served(call.blocks)
        result.blocks += len(call.blocks)
        result.cached += hits
        uncached = (len(call.blocks) - hits) * BLOCK_TOKENS
        took_s = uncached * setup.prompt_token_s + call.output_tokens * setup.output_token_s
        result.busy_s += took_s
        heapq.heappush(self._ends, (self._now + took_s, next(self._numbers), number, place))

    def _free(self, place: int) -> None:
        replica = self._replicas[place]
        replica.load -= 1
        replica.room += 1
        if replica.waiting:
            self._start(place, *replica.waiting.popleft())
