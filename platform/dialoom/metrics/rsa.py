"""Relative slot accuracy."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, distinct_slots, mean_over_turns, pairs


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Mean over all turns of (T - M - |P - G|) / T, with T the slots filled on either side and M the gold slots
    that are not predicted. A turn with T = 0 scores 0, though it is right: kept on purpose. "none" values are no pairs;
    the slot of a pair is the text before the last "-", which alone can make a turn negative.
    """
    found = data.once(pairs)
    total, missed = distinct_slots(found, data.n_turns)
    score = total - missed - (found.n_pred - found.n_both)
    return {"accuracy": mean_over_turns(data, np.divide(score, total, out=np.zeros(data.n_turns), where=total > 0))}


PLUGIN = Definition(
    "rsa",
    "relative slot accuracy: share of the slots filled on either side that are right",
    f"Kim et al. 2022; {SOURCE}",
    (Measure("accuracy", "mean share of filled slots that are right"),),
    compute,
)
