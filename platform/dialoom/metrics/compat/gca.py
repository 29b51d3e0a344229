"""What the set-based scores of the Granular Change Accuracy repository have in common.

Source: the repository's ``compute_accuracies.py`` and ``gca.py`` at a81b6efd7b85. A turn's state is a set of texts
``domain-slot-value``. Kept on purpose: values "none" are no pairs; the "slot of a pair" is the text before the *last*
"-", so that a value with a "-" shifts it. Where gold accepts several forms, a prediction of any of them is gold's pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dialoom.metric import Bools, Floats, Grouping, Ints, Measured, mean_of
from dialoom.metrics._columns import distinct, find_keys, last_of_each, numbered
from dialoom.metrics._input import Rows, ScoreInput

SOURCE = "Granular_Change_Accuracy repository at a81b6efd7b85"
MULTIWOZ_SLOTS = 30
"""Slots of the five MultiWOZ domains, the figure that the published code has fixed."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Aligned slots without "none" values, and counts a turn.

    ``gold_slot`` and ``pred_slot`` are the slots of the two pairs as the code reads them; ``match`` says that the pair
    is on both sides.
    """

    turn: Ints
    has_gold: Bools
    has_pred: Bools
    match: Bools
    gold_slot: Ints
    pred_slot: Ints
    n_gold: Floats
    n_pred: Floats
    n_both: Floats

    @property
    def exact(self) -> Bools:
        """Whether the two sets of a turn are equal."""
        result: Bools = (self.n_gold == self.n_both) & (self.n_pred == self.n_both)
        return result


def pairs(data: ScoreInput) -> Pairs:
    """The pairs of every turn; shared by all definitions of the family."""
    rows = data.aligned
    none = data.none
    gold = np.where(rows.gold >= 0, data.first[rows.gold], -1)
    has_gold, has_pred = (gold >= 0) & (gold != none), (rows.pred >= 0) & (rows.pred != none)
    kept = has_gold | has_pred
    turn, match = rows.turn[kept], (rows.match & has_gold & has_pred)[kept]
    has_gold, has_pred = has_gold[kept], has_pred[kept]
    slot, gold, pred = rows.slot[kept], gold[kept], rows.pred[kept]
    gold_slot, pred_slot = _slots_as_read(data, slot, gold, pred)
    n = data.n_turns
    return Pairs(
        turn=turn,
        has_gold=has_gold,
        has_pred=has_pred,
        match=match,
        gold_slot=gold_slot,
        pred_slot=np.where(match, gold_slot, pred_slot),
        n_gold=np.bincount(turn[has_gold], minlength=n).astype(np.float64),
        n_pred=np.bincount(turn[has_pred], minlength=n).astype(np.float64),
        n_both=np.bincount(turn[match], minlength=n).astype(np.float64),
    )


def _slots_as_read(data: ScoreInput, slot: Ints, gold: Ints, pred: Ints) -> tuple[Ints, Ints]:
    """Slot ids of both sides' pairs by the text before the last "-"; plain values keep their slot's own id."""
    dashed = np.array([("-" in v) for v in data.values] or [False])
    ids = {data.slot_name(i): i for i in range(len(data.slots))}
    width = max(len(data.values), 1)
    sides = []
    for value in (gold, pred):
        read = slot.copy()
        odd = np.flatnonzero((value >= 0) & dashed[value])
        keys, inverse = numbered(slot[odd] * width + value[odd])
        texts = [f"{data.slot_name(k // width)}-{data.values[k % width]}".rpartition("-")[0] for k in keys.tolist()]
        read[odd] = np.array([ids.setdefault(t, len(ids)) for t in texts], dtype=np.int64)[inverse]
        sides.append(read)
    return sides[0], sides[1]


def distinct_slots(found: Pairs, n_turns: int) -> tuple[Floats, Floats]:
    """A turn's distinct slots on either side, and its gold slots that are not among the predicted ones."""
    width = int(max(found.gold_slot.max(initial=0), found.pred_slot.max(initial=0))) + 1
    gold = distinct(found.turn[found.has_gold] * width + found.gold_slot[found.has_gold])
    pred = distinct(found.turn[found.has_pred] * width + found.pred_slot[found.has_pred])
    both = np.bincount(distinct(gold, pred) // width, minlength=n_turns)
    missed = gold[find_keys(pred, gold) < 0]
    return both.astype(np.float64), np.bincount(missed // width, minlength=n_turns).astype(np.float64)


def spurious_slots(found: Pairs, n_turns: int) -> Floats:
    """A turn's predicted pairs outside gold whose slot is not the slot of a missed gold pair."""
    width = int(max(found.gold_slot.max(initial=0), found.pred_slot.max(initial=0))) + 1
    lost, extra = found.has_gold & ~found.match, found.has_pred & ~found.match
    missed = distinct(found.turn[lost] * width + found.gold_slot[lost])
    wrong = found.turn[extra] * width + found.pred_slot[extra]
    return np.bincount(found.turn[extra][find_keys(missed, wrong) < 0], minlength=n_turns).astype(np.float64)


def slot_total(data: ScoreInput) -> int:
    """The number of slots that slot accuracy divides by: 30 for MultiWOZ's domains, else the schema's slots."""
    from dialoom.scoring import MULTIWOZ_DOMAINS

    if not data.schema or MULTIWOZ_DOMAINS.issuperset(data.services):
        return MULTIWOZ_SLOTS
    return sum(len(service.slots) for service in data.schema.values())


def mean_over_turns(data: ScoreInput, values: Floats | Bools, kept: Bools | None = None) -> Measured:
    """Mean of one value a turn, of the ``kept`` turns, with the turn breakdowns."""
    at = np.arange(data.n_turns) if kept is None else np.flatnonzero(kept)
    return mean_of(values[at], data.dialogue[at], data.n_dialogues, data.turn_grouping(at))


def new_pairs(data: ScoreInput, rows: Rows) -> Bools:
    """Whether a row's pair was not in the same side's state one turn before ("none" kept out by the caller)."""
    width = max(len(data.slots), 1)
    keys = rows.turn * width + rows.slot
    before = np.where(data.starts[rows.turn], -1, find_keys(keys, keys - width))
    result: Bools = (before < 0) | (rows.value != np.append(rows.value, -1)[before])
    return result


def without_none(data: ScoreInput, rows: Rows) -> Rows:
    """``rows`` with first forms for values, and without "none"."""
    value = data.first[rows.value]
    kept = value != data.none
    return Rows(rows.turn[kept], rows.slot[kept], value[kept])


def fga_errors(data: ScoreInput) -> tuple[Bools, Ints]:
    """Flexible goal accuracy: whether a turn is exact, and the turns since the latest new error (0 in that turn).

    Where a turn is exact the second figure means nothing.
    """
    found = data.once(pairs)
    exact = found.exact
    before = np.append(True, exact[:-1])[: data.n_turns]
    fresh = data.starts | before | _introduces(data, data.gold, data.pred) | _introduces(data, data.pred, data.gold)
    error = ~exact & fresh
    at = np.arange(data.n_turns)
    latest = np.maximum.accumulate(np.where(error | data.starts, at, 0)) if data.n_turns else at
    return exact, at - latest


def _introduces(data: ScoreInput, side: Rows, other: Rows) -> Bools:
    """Whether a turn's ``side`` has a pair that is new since the turn before and that ``other`` does not have."""
    own, theirs = without_none(data, side), other
    width = max(len(data.slots), 1)
    at = find_keys(theirs.turn * width + theirs.slot, own.turn * width + own.slot)
    value = np.where(at >= 0, np.append(theirs.value, -1)[at], -1)
    if side is data.pred:
        held = data.matches(value, own.value)
    else:
        raw = side.value[data.first[side.value] != data.none]
        held = data.matches(raw, value)
    lone = new_pairs(data, own) & ~held
    result: Bools = np.bincount(own.turn[lone], minlength=data.n_turns) > 0
    return result


@dataclass(frozen=True, eq=False)
class Changes:
    """One side's changes of labels over time: the turn, the label, the new value (``none`` when dropped)."""

    turn: Ints
    label: Ints
    value: Ints


class Timeline:
    """One side's dictionaries turn by turn, where a label once seen and now absent has the value "none"."""

    def __init__(self, data: ScoreInput, rows: Rows) -> None:
        self.data = data
        self.none = data.none
        labels = np.array(_labels(data), dtype=np.int64) if len(data.slots) else np.empty(0, np.int64)
        label, width = labels[rows.slot], max(len(data.slots), 1)
        keep = last_of_each(rows.turn * width + label)
        self.turn, self.label, self.value = rows.turn[keep], label[keep], rows.value[keep]
        # One track a dialogue and label, in time: rows sorted by (track, turn).
        track = data.dialogue[self.turn] * width + self.label
        order = np.lexsort((self.turn, track))
        self.turn, self.label, self.value, self.track = (a[order] for a in (self.turn, self.label, self.value, track))
        self.keys = self.track * (data.n_turns + 1) + self.turn

    def at(self, turn: Ints, label: Ints) -> Ints:
        """The value of ``label`` at ``turn``: -1 where it has never been seen."""
        track = self.data.dialogue[turn] * max(len(self.data.slots), 1) + label
        found = np.searchsorted(self.keys, track * (self.data.n_turns + 1) + turn, side="right") - 1
        seen = (found >= 0) & (np.append(self.track, -1)[found] == track)
        now = seen & (np.append(self.turn, -1)[found] == turn)
        return np.where(now, np.append(self.value, -1)[found], np.where(seen, self.none, -1))

    def canonical(self, value: Ints) -> Ints:
        """Values by their first form, with "none" as one id."""
        return np.where(value >= 0, self.data.first[value], -1)

    def changes(self) -> Changes:
        """Labels whose value differs from the same side's turn before; all of a first turn's, and new labels."""
        follows = np.append((self.track[1:] == self.track[:-1]), False)
        value = self.canonical(self.value)
        after = np.append(False, follows[:-1])
        held = np.append(False, self.turn[1:] == self.turn[:-1] + 1) & after
        previous = np.where(held, np.append(-1, value[:-1]), np.where(after, self.none, -1))
        changed = value != previous
        ends = np.append(self.turn[1:] != self.turn[:-1] + 1, True) | ~follows
        next_turn = np.minimum(self.turn + 1, max(self.data.n_turns - 1, 0))
        lasts = (self.turn + 1 < self.data.n_turns) & (self.data.dialogue[next_turn] == self.data.dialogue[self.turn])
        dropped = ends & lasts & (value != self.none)
        return Changes(
            np.concatenate([self.turn[changed], self.turn[dropped] + 1]),
            np.concatenate([self.label[changed], self.label[dropped]]),
            np.concatenate([self.value[changed], np.full(int(dropped.sum()), self.none)]),
        )


def _labels(data: ScoreInput) -> list[int]:
    """Slot id to label id: slots whose ``domain_slot`` texts are the same share one."""
    ids: dict[str, int] = {}
    names = (data.slot_name(i).replace("-", "_", 1) for i in range(len(data.slots)))
    return [ids.setdefault(name, len(ids)) for name in names]


def gca_counts(data: ScoreInput) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Turns of every counted change, by ``correct``, ``wrong``, ``over`` and ``missed``; and the labels likewise."""
    gold, pred = Timeline(data, data.gold), Timeline(data, data.pred)
    none = gold.none

    def same(g: Ints, p: Ints) -> Bools:
        equal: Bools = data.matches(g, p) | ((gold.canonical(g) == none) & (p == none))
        return equal & (g >= 0) & (p >= 0)

    dg = gold.changes()
    p = pred.at(dg.turn, dg.label)
    g_none = gold.canonical(dg.value) == none
    unseen, equal = p < 0, same(dg.value, p)
    first = {
        "correct": np.where(unseen, g_none, equal),
        "missed": unseen & ~g_none,
        "over": ~unseen & ~equal & g_none,
        "wrong": ~unseen & ~equal & ~g_none,
    }
    dp = pred.changes()
    g = gold.at(dp.turn, dp.label)
    p_none, unseen, equal = dp.value == none, g < 0, same(g, dp.value)
    width = max(len(data.slots), 1)
    done = {kind: np.sort(dg.turn[first[kind]] * width + dg.label[first[kind]]) for kind in ("correct", "wrong")}
    counted = {kind: find_keys(keys, dp.turn * width + dp.label) >= 0 for kind, keys in done.items()}
    late = ~unseen & equal & ~counted["correct"]
    second = {
        "correct": np.where(unseen, p_none, late),
        "over": unseen & ~p_none,
        "missed": ~unseen & ~late & p_none,
        "wrong": ~unseen & ~equal & ~p_none & ~counted["wrong"],
    }
    turns = {k: np.concatenate([dg.turn[first[k]], dp.turn[second[k]]]) for k in first}
    labels = {k: np.concatenate([dg.label[first[k]], dp.label[second[k]]]) for k in first}
    return turns, labels


def gca(sums: Floats) -> Floats:
    """The score from sums of correct, wrong, over-predicted and missed changes; 0 where nothing is correct."""
    c, w, o, m = sums
    d1, d2 = c + w + o, c + w + m
    alpha = 10 / 11
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (d1 + d2) / ((d1 * d1 + d2 * d2) * (alpha / c + (1 - alpha) / (c + w)))
    result: Floats = np.where(c > 0, score, np.where(c + w + o + m > 0, 0.0, np.nan))
    return result


def label_grouping(data: ScoreInput, labels: Ints) -> dict[str, Grouping]:
    """Rows by slot."""
    names: dict[int, str] = {}
    for i, label in enumerate(_labels(data)):
        names.setdefault(label, f"{data.slots[i].service}/{data.slots[i].slot}")
    return {"slot": Grouping([names.get(i, "") for i in range(len(data.slots))], labels)}
