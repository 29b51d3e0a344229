"""Slot accuracy."""

from __future__ import annotations

from dialoom.metric import Definition, Measure, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, mean_over_turns, pairs, slot_total, spurious_slots


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Mean over turns of (T - m - w) / T, with m the gold pairs that are not predicted, and w the predicted pairs
    outside gold whose slot is not the slot of one of those m. T is 30, MultiWOZ's slots, where the domains are
    MultiWOZ's or no schema is known, else the number of slots in the schema. Slots that stay empty on both sides count
    as right, which makes the figure high for every system. "none" values are no pairs; the slot of a pair is the text
    before the last "-".
    """
    found, total = data.once(pairs), slot_total(data)
    wrong = spurious_slots(found, data.n_turns)
    missed = found.n_gold - found.n_both
    return {"accuracy": mean_over_turns(data, (total - missed - wrong) / total)}


PLUGIN = Definition(
    "slot_accuracy",
    "slot accuracy: share of all slots that are right, empty ones included",
    f"Wu et al. 2019 (TRADE); {SOURCE}",
    (Measure("accuracy", "mean share of slots that are right"),),
    compute,
)
