"""SGD official: exact match."""

from __future__ import annotations

from dialoom.metric import Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.sgd import definition, official


def compute(data: ScoreInput) -> dict[str, Measured]:
    """As ``sgd_fuzzy``, but free text must equal one of the gold forms exactly (use_fuzzy_match=false)."""
    return official(data, None)


PLUGIN = definition(
    "sgd_exact",
    "SGD official evaluation, exact match",
    compute,
)
