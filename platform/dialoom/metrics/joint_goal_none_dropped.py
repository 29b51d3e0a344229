"""Joint goal accuracy with "none" values left out."""

from __future__ import annotations

from dialoom.metric import Definition, Measure, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, mean_over_turns, pairs


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Share of turns whose sets of filled slots and values are equal, a value "none" counting as not filled on either
    side. Every turn counts, also with both sides empty.
    """
    return {"joint_goal_accuracy": mean_over_turns(data, data.once(pairs).exact)}


PLUGIN = Definition(
    "joint_goal_none_dropped",
    'exact joint goal accuracy, "none" values dropped on both sides',
    SOURCE,
    (Measure("joint_goal_accuracy", "share of turns with the whole state right"),),
    compute,
)
