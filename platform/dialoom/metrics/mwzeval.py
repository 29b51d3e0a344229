"""Joint accuracy and slot F1 of the MultiWOZ_Evaluation package."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dialoom.metric import Combine, Definition, Floats, Grouping, Measure, Measured, measured, measured_each
from dialoom.metrics._columns import once_per_pair
from dialoom.metrics._input import ScoreInput
from dialoom.metrics._rewrite import rewrite
from dialoom.metrics.compat.fuzz import partial_ratio
from dialoom.metrics.compat.mwzeval import normal_ref, normal_value
from dialoom.schema import DONTCARE
from dialoom.state import SlotRef

EPSILON = 1e-10
"""Added to every denominator by the evaluator."""
THRESHOLD = 95
SOURCE = "Nekvinda and Dusek 2021; MultiWOZ_Evaluation (mwzeval) at 7f19ee01ffd9"
MEASURES = (
    Measure("joint_accuracy", "share of turns with the same slots and matching values"),
    Measure("slot_f1", "F1 of filled slots over the corpus"),
    Measure("slot_precision", "share of predicted slots that match"),
    Measure("slot_recall", "share of gold slots that are matched"),
)


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Slot names and values of both sides are normalised by the package's own tables (venues, foods, types, times; not
    areas, days or "dontcare"); a gold value is its first form. Two values match if their partial ratio is above 95, so
    a substring matches ("1" and "13:30"), and an empty value matches nothing but an empty one.

    Joint accuracy: turns whose slots are the same and all match, over the turns that are predicted. Slot counts over
    the corpus: a wrong value is one false positive and one false negative. Every denominator has 1e-10 added. The
    evaluator prints joint accuracy and F1 in percent.
    """
    return score(data, drop_dontcare=False)


def score(data: ScoreInput, *, drop_dontcare: bool) -> dict[str, Measured]:
    """The measures; with ``drop_dontcare`` a gold slot that accepts "dontcare" is no gold slot."""

    def gold(ref: SlotRef, forms: tuple[str, ...]) -> tuple[str, ...]:
        if drop_dontcare and DONTCARE in forms:
            return ()
        return (normal_value(ref.slot, forms[0]),)

    states = rewrite(data, normal_ref, gold, lambda ref, value: normal_value(ref.slot, value))
    rows = states.aligned
    both = np.flatnonzero((rows.gold >= 0) & (rows.pred >= 0))
    right = np.zeros(len(rows.turn), dtype=np.bool_)

    def similar(gold_value: int, pred_value: int) -> float:
        return partial_ratio(states.values[pred_value], states.values[gold_value]) > THRESHOLD

    right[both] = once_per_pair(rows.gold[both], rows.pred[both], similar) > 0
    joint = np.bincount(rows.turn[~right], minlength=data.n_turns) == 0
    n = data.n_dialogues
    stats = [joint, np.ones(data.n_turns)]
    result = {"joint_accuracy": measured(stats, data.dialogue, n, _share, data.turn_groups)}
    counts = [right, (rows.pred >= 0) & ~right, (rows.gold >= 0) & ~right]
    groups = {"service": Grouping(list(states.services), states.slot_service[rows.slot])}
    groups["slot"] = Grouping([f"{r.service}/{r.slot}" for r in states.slots], rows.slot)
    combines: Mapping[str, Combine] = {"slot_f1": _f1, "slot_precision": _precision, "slot_recall": _recall}
    result |= measured_each(counts, data.dialogue[rows.turn], n, combines, groups)
    return result


def _share(sums: Floats) -> Floats:
    result: Floats = sums[0] / (sums[1] + EPSILON)
    return result


def _precision(sums: Floats) -> Floats:
    result: Floats = sums[0] / (sums[0] + sums[1] + EPSILON)
    return result


def _recall(sums: Floats) -> Floats:
    result: Floats = sums[0] / (sums[0] + sums[2] + EPSILON)
    return result


def _f1(sums: Floats) -> Floats:
    p, r = _precision(sums), _recall(sums)
    result: Floats = 2 * p * r / (p + r + EPSILON)
    return result


PLUGIN = Definition(
    "mwzeval",
    "joint accuracy and slot F1 of MultiWOZ_Evaluation: normalised values, partial matches",
    SOURCE,
    MEASURES,
    compute,
    "multiwoz",
)
