"""SGD official: fuzzy match, difflib back end."""

from __future__ import annotations

from dialoom.metric import Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import difflib_ratio
from dialoom.metrics.compat.sgd import definition, official


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Free text earns its similarity (token sort ratio, difflib back end), categorical slots match or do not.

    Score of a slot that both sides have: categorical, 1 if the first gold value equals the predicted one, else 0; free
    text, the best similarity of any gold form with the prediction. One side only: 0. Neither: 1. A frame's joint goal
    is the product over the slots of the service's schema; figures are means over frames. The evaluator's requirements
    install this back end; python-Levenshtein scores some pairs otherwise.
    """
    return official(data, difflib_ratio)


PLUGIN = definition(
    "sgd_fuzzy",
    "SGD official evaluation, fuzzy match, difflib back end",
    compute,
)
