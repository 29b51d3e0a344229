"""Joint goal, slot accuracy and turn F1 as TRADE and its successors compute them over 30 slots.

Sources: TRADE (read), Zero-Shot-DST (T5DST) at 5781d2fe0872, IC-DST at c968321b699a, FnCTOD at 243fa2f6850d.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dialoom.metric import Bools, Figure, Floats, Ints, Measure, Measured, mean_of
from dialoom.metrics._columns import distinct, find_keys
from dialoom.metrics._input import Alignment, ScoreInput
from dialoom.metrics.compat.multiwoz import DOMAINS, TRADE_SLOTS

MEASURES = (
    Measure("joint_goal_accuracy", "share of turns with the whole state right"),
    Measure("slot_accuracy", "mean share of the evaluated slots that are right"),
    Measure("turn_f1", "mean F1 of the turns' slots"),
)


def trade_scores(states: ScoreInput, kept: Bools | None = None, *, slots_of_domain: bool = True) -> dict[str, Measured]:
    """The three measures over the turns of ``kept`` dialogues (all without), and by domain.

    A domain's figures take all turns of the dialogues whose goal names it, both states cut to its slots; slot accuracy
    then divides by the domain's slots, or by 30 where ``slots_of_domain`` is false.
    """
    all_dialogues = np.ones(states.n_dialogues, dtype=np.bool_) if kept is None else kept
    overall = turn_values(states, states.aligned, 30)
    at = np.flatnonzero(all_dialogues[states.dialogue])
    by: dict[str, dict[str, Figure]] = {m.name: {} for m in MEASURES}
    for domain in DOMAINS:
        inside = np.flatnonzero((all_dialogues & states.of_goal(domain))[states.dialogue])
        if not len(inside):
            continue
        total = len(TRADE_SLOTS[domain]) if slots_of_domain else 30
        for name, values in turn_values(states, cut(states, domain), total).items():
            by[name][domain] = Figure(float(values[inside].mean()), len(inside))
    groups = states.turn_grouping(at)
    result = {}
    for name, values in overall.items():
        m = mean_of(values[at], states.dialogue[at], states.n_dialogues, groups)
        result[name] = Measured(m.overall, {"domain": by[name], **m.by}, m.sums, m.combine)
    return result


def cut(states: ScoreInput, domain: str) -> Alignment:
    """The aligned rows of one domain."""
    rows = states.aligned
    service = list(states.services).index(domain) if domain in states.services else -1
    kept = np.flatnonzero(states.slot_service[rows.slot] == service)
    return Alignment(rows.turn[kept], rows.slot[kept], rows.gold[kept], rows.pred[kept], rows.match[kept])


def turn_values(states: ScoreInput, rows: Alignment, total: int) -> Mapping[str, Floats]:
    """Every turn's joint goal, slot accuracy and F1 from its aligned slots."""
    n = states.n_turns
    gold, pred = _count(rows.turn[rows.gold >= 0], n), _count(rows.turn[rows.pred >= 0], n)
    both = _count(rows.turn[rows.match], n)
    wrong = _spurious(states, rows)
    f1 = np.divide(2 * both, gold + pred, out=np.zeros(n), where=gold + pred > 0)
    return {
        "joint_goal_accuracy": ((gold == both) & (pred == both)).astype(np.float64),
        "slot_accuracy": (total - (gold - both) - wrong) / total,
        "turn_f1": np.where(gold + pred == 0, 1.0, f1),
    }


def _count(turn: Ints, n: int) -> Floats:
    return np.bincount(turn, minlength=n).astype(np.float64)


def _spurious(states: ScoreInput, rows: Alignment) -> Floats:
    """Predicted pairs outside gold whose slot, the text before the last "-", is not that of a missed gold pair."""
    lost, extra = (rows.gold >= 0) & ~rows.match, (rows.pred >= 0) & ~rows.match
    dashed = np.array([("-" in v) for v in states.values] or [False])
    gold_first = np.where(rows.gold >= 0, states.first[rows.gold], 0)
    if not dashed[gold_first[lost]].any() and not dashed[rows.pred[extra]].any():
        return _count(rows.turn[extra & (rows.gold < 0)], states.n_turns)
    read = _Reader(states)
    width = len(states.slots) * len(states.values) + 1
    missed = distinct(rows.turn[lost] * width + read.slots(rows.slot[lost], gold_first[lost]))
    given = rows.turn[extra] * width + read.slots(rows.slot[extra], rows.pred[extra])
    return _count(rows.turn[extra][find_keys(missed, given) < 0], states.n_turns)


class _Reader:
    """Slots as the code reads them off ``domain-slot-value`` texts."""

    def __init__(self, states: ScoreInput) -> None:
        self.states = states
        self.ids = {states.slot_name(i): i for i in range(len(states.slots))}

    def slots(self, slot: Ints, value: Ints) -> Ints:
        """Ids of the texts before the last "-"."""
        texts = (
            f"{self.states.slot_name(s)}-{self.states.values[v]}".rpartition("-")[0]
            for s, v in zip(slot.tolist(), value.tolist(), strict=True)
        )
        return np.fromiter((self.ids.setdefault(t, len(self.ids)) for t in texts), np.int64, len(slot))
