"""The common input of every metric definition: gold and predictions of many turns, side by side, as integer arrays.

Only labelled turns of scored dialogues are in it, ordered by dialogue and turn. Services, slots, values and intents are
ids into the vocabularies. Gold values are *sets* of acceptable forms: a set id below ``len(values)`` is that one value;
an id from there on is an entry of ``sets``. ``match`` and ``first`` hide the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from dialoom.metric import Bools, Grouping, Ints
from dialoom.metrics._columns import distinct, find_keys, once_per_pair
from dialoom.metrics._log import TurnLog
from dialoom.schema import Service
from dialoom.state import SlotRef

T = TypeVar("T")

NO_VALUE = "none"
"""What several published data sets and evaluators write for a slot without a value; an ordinary value elsewhere."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The filled slots of every turn's state, sorted by (turn, slot), each (turn, slot) once.

    ``value`` is a value id on the predicted side, a set id on the gold side.
    """

    turn: Ints
    slot: Ints
    value: Ints


@dataclass(frozen=True, eq=False)
class Frames:
    """The gold frames, sorted by (turn, service). Intents and lists are ids; -1: not annotated, or not predicted."""

    turn: Ints
    service: Ints
    gold_intent: Ints
    pred_intent: Ints
    gold_requested: Ints
    pred_requested: Ints
    gold_spans: Ints
    pred_spans: Ints


@dataclass(frozen=True, eq=False)
class Alignment:
    """Every slot filled on at least one side, sorted by (turn, slot); -1 where a side has no value."""

    turn: Ints
    slot: Ints
    gold: Ints
    pred: Ints
    match: Bools
    """Both sides filled, and the prediction equals an acceptable gold form, character by character."""


@dataclass(frozen=True, eq=False)
class ScoreInput:
    """What a definition computes from; see the module's text.

    ``gold`` is the whole gold state after each turn: where the data annotates active services only (``whole_state`` is
    false), a service keeps its last annotated frame until the next one. ``seen`` are the services of the training
    split, ``None`` where that is not known.
    """

    services: Sequence[str]
    slots: Sequence[SlotRef]
    slot_service: Ints
    values: Sequence[str]
    sets: Sequence[tuple[int, ...]]
    intents: Sequence[str]
    lists: Sequence[tuple[str, ...]]
    """Requested slots, and slot spans as (slot, text, slot, text, ..)."""
    dialogue_ids: Sequence[str]
    trials: Sequence[int]
    """By dialogue, like ``dialogue_ids``."""
    clusters: Ints
    """Dialogue index to number of its dialogue id: trials of one dialogue share one."""
    dialogue: Ints
    user_turn: Ints
    turn: Ints
    gold: Rows
    pred: Rows
    frames: Frames
    schema: Mapping[str, Service]
    seen: frozenset[str] | None = None
    whole_state: bool = False
    goals: Sequence[frozenset[str] | None] | None = None
    """By dialogue: the domains of the user's goal, where the data says them."""
    deleted: int = -1
    """The value id of ``[DELETE]``."""
    none: int = -1
    """The value id of "none"."""
    log: TurnLog | None = None

    @property
    def n_turns(self) -> int:
        """How many labelled turns there are."""
        return len(self.dialogue)

    @property
    def n_dialogues(self) -> int:
        """How many scored dialogues there are, those without a labelled turn included."""
        return len(self.dialogue_ids)

    @cached_property
    def starts(self) -> Bools:
        """Whether a turn is the first labelled one of its dialogue."""
        result: Bools = np.append(True, self.dialogue[1:] != self.dialogue[:-1])[: self.n_turns]
        return result

    @cached_property
    def position(self) -> Ints:
        """Number of the turn among its dialogue's labelled turns, from 0."""
        at = np.arange(self.n_turns)
        return at - np.maximum.accumulate(np.where(self.starts, at, 0)) if self.n_turns else at

    @cached_property
    def first(self) -> Ints:
        """Set id to its first (best) value id."""
        return np.concatenate([np.arange(len(self.values)), [s[0] for s in self.sets]]).astype(np.int64)

    def accepted(self, gold_set: int) -> tuple[int, ...]:
        """The value ids of a set id."""
        plain = len(self.values)
        return (gold_set,) if gold_set < plain else self.sets[gold_set - plain]

    def matches(self, gold: Ints, pred: Ints) -> Bools:
        """Whether each predicted value id is in each gold set id; false where either is -1."""
        equal: Bools = (gold == pred) & (gold >= 0)
        several = np.flatnonzero((gold >= len(self.values)) & (pred >= 0))
        if len(several):
            members = {len(self.values) + i: set(s) for i, s in enumerate(self.sets)}
            pairs = zip(gold[several].tolist(), pred[several].tolist(), strict=True)
            equal[several] = [p in members[g] for g, p in pairs]
        return equal

    def once(self, function: Callable[[ScoreInput], T]) -> T:
        """``function`` of this input, computed the first time; definitions share intermediate results so."""
        shared: dict[object, Any] = self._shared
        if function not in shared:
            shared[function] = function(self)
        result: T = shared[function]
        return result

    @cached_property
    def _shared(self) -> dict[object, Any]:
        return {}

    def slot_name(self, slot: int) -> str:
        """``service-slot``; a slot that already starts with its service is left as it is."""
        service, name = self.slots[slot]
        return name if name.startswith(f"{service}-") else f"{service}-{name}"

    @cached_property
    def aligned(self) -> Alignment:
        """Gold and predicted states joined slot by slot."""
        return align(self, self.gold, self.pred)

    @cached_property
    def exact_turns(self) -> Bools:
        """Whether gold and predicted state of a turn are the same."""
        wrong = self.aligned.turn[~self.aligned.match]
        result: Bools = np.bincount(wrong, minlength=self.n_turns) == 0
        return result

    @cached_property
    def dialogue_services(self) -> Bools:
        """(dialogue, service): whether gold names the service at any turn of the dialogue."""
        has = np.zeros((self.n_dialogues, max(len(self.services), 1)), dtype=np.bool_)
        has[self.dialogue[self.gold.turn], self.slot_service[self.gold.slot]] = True
        has[self.dialogue[self.frames.turn], self.frames.service] = True
        return has

    def of_goal(self, domain: str) -> Bools:
        """By dialogue: whether the user's goal names ``domain``; where no goal is known, whether gold ever does."""
        named = self.dialogue_services[:, list(self.services).index(domain)] if domain in self.services else None
        found = np.zeros(self.n_dialogues, np.bool_) if named is None else named.copy()
        for i, goal in enumerate(self.goals or ()):
            if goal is not None:
                found[i] = domain in goal
        return found

    @cached_property
    def turn_groups(self) -> dict[str, Grouping]:
        """Groupings of turns by depth, by user turns in the dialogue, and by services gold names in the dialogue."""
        length = np.bincount(self.dialogue, minlength=self.n_dialogues)[self.dialogue]
        depth = np.where(self.user_turn >= 0, self.user_turn + 1, self.position + 1)
        n_services = self.dialogue_services.sum(axis=1)[self.dialogue]
        return {
            "turn_depth": _ranges(depth, (1, 2, 3, 4, 5, 7, 9, 13)),
            "dialogue_length": _ranges(length, (1, 3, 5, 7, 9, 11, 13, 17)),
            "n_services": _ranges(n_services, (0, 1, 2, 3, 4)),
        }

    def turn_grouping(self, rows: Ints) -> dict[str, Grouping]:
        """:attr:`turn_groups` for rows that belong to the turns ``rows``."""
        return {kind: Grouping(g.labels, g.codes[rows]) for kind, g in self.turn_groups.items()}

    def service_grouping(self, service: Ints) -> dict[str, Grouping]:
        """Groupings of rows by service, by domain (the text before the first "_") and by seen or unseen service."""
        domains = sorted({s.partition("_")[0] for s in self.services})
        domain = np.array([domains.index(s.partition("_")[0]) for s in self.services] or [0], dtype=np.int64)
        groups = {"service": Grouping(list(self.services), service)}
        if len(domains) < len(self.services) or any("_" in s for s in self.services):
            groups["domain"] = Grouping(domains, domain[service])
        if self.seen is not None:
            unseen = np.array([s not in self.seen for s in self.services] or [False], dtype=np.int64)
            groups["services"] = Grouping(["seen", "unseen"], unseen[service])
        return groups

    def with_pred(self, pred: Rows) -> ScoreInput:
        """The same gold against other predicted states."""
        return replace(self, pred=pred)


def align(data: ScoreInput, gold: Rows, pred: Rows) -> Alignment:
    """Outer join of two sets of rows on (turn, slot)."""
    width = max(len(data.slots), 1)
    gold_keys, pred_keys = gold.turn * width + gold.slot, pred.turn * width + pred.slot
    keys = distinct(gold_keys, pred_keys)
    gold_at, pred_at = find_keys(gold_keys, keys), find_keys(pred_keys, keys)
    gold_value = np.where(gold_at >= 0, np.append(gold.value, -1)[gold_at], -1)
    pred_value = np.where(pred_at >= 0, np.append(pred.value, -1)[pred_at], -1)
    return Alignment(keys // width, keys % width, gold_value, pred_value, data.matches(gold_value, pred_value))


def changes(data: ScoreInput, rows: Rows) -> Rows:
    """What each turn changes against the labelled turn before it: new and changed slots with their new value, dropped
    slots with ``[DELETE]``. A gold slot has changed when the two turns accept no form in common.
    """
    width = max(len(data.slots), 1)
    keys = rows.turn * width + rows.slot
    before = np.where(data.starts[rows.turn], -1, find_keys(keys, keys - width))
    new = (before < 0) | ~_overlap(data, rows.value, rows.value[before])
    follows = np.append(~data.starts[1:], False)[rows.turn] if data.n_turns else np.empty(0, np.bool_)
    dropped = follows & (find_keys(keys, keys + width) < 0)
    turn = np.concatenate([rows.turn[new], rows.turn[dropped] + 1])
    slot = np.concatenate([rows.slot[new], rows.slot[dropped]])
    value = np.concatenate([rows.value[new], np.full(int(dropped.sum()), data.deleted)])
    order = np.lexsort((slot, turn))
    return Rows(turn[order], slot[order], value[order])


def _overlap(data: ScoreInput, one: Ints, other: Ints) -> Bools:
    equal: Bools = one == other
    unsure = np.flatnonzero(~equal & (np.maximum(one, other) >= len(data.values)))

    def share(a: int, b: int) -> float:
        return float(not set(data.accepted(a)).isdisjoint(data.accepted(b)))

    equal[unsure] = once_per_pair(one[unsure], other[unsure], share) > 0
    return equal


def _ranges(values: Ints, starts: tuple[int, ...]) -> Grouping:
    """Groups by range: each starts at an entry of ``starts`` and ends before the next; the last is open."""
    labels = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(starts)]
    labels.append(f"{starts[-1]}+")
    codes = np.searchsorted(np.array(starts), values, side="right") - 1
    return Grouping(labels, codes.astype(np.int64))
