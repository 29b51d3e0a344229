"""SGD official: fuzzy match, python-Levenshtein back end."""

from __future__ import annotations

from dialoom.metric import Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import levenshtein_ratio
from dialoom.metrics.compat.sgd import definition, official


def compute(data: ScoreInput) -> dict[str, Measured]:
    """As ``sgd_fuzzy``, similarity from the edit distance with replacements at cost 2 (python-Levenshtein back end).

    Many published runs had that library installed: the two back ends differ on about 6 % of unequal pairs.
    """
    return official(data, levenshtein_ratio)


PLUGIN = definition(
    "sgd_fuzzy_levenshtein",
    "SGD official evaluation, fuzzy match, python-Levenshtein back end",
    compute,
)
