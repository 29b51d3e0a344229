"""SGD official: fuzzy match, joint over the services of a turn."""

from __future__ import annotations

from dialoom.metric import Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import difflib_ratio
from dialoom.metrics.compat.sgd import definition, official


def compute(data: ScoreInput) -> dict[str, Measured]:
    """As ``sgd_fuzzy``; joint goals of the frames of a user turn are multiplied first (within each
    collection) and the mean is over turns (joint_acc_across_turn=true). All other measures are unchanged.
    """
    return official(data, difflib_ratio, across_turn=True)


PLUGIN = definition(
    "sgd_fuzzy_across_turn",
    "SGD official evaluation, fuzzy match, joint over the services of a turn",
    compute,
)
