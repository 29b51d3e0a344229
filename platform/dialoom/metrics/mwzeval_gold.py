"""MultiWOZ_Evaluation as it reads the real gold of MultiWOZ 2.2."""

from __future__ import annotations

from dialoom.metric import Definition, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.mwzeval import MEASURES, SOURCE, score


def compute(data: ScoreInput) -> dict[str, Measured]:
    """As ``mwzeval``; in addition, as that package does when it loads the gold states of MultiWOZ 2.2, a gold slot
    whose list of forms contains "dontcare" is dropped. It stays in predictions, where it is then a false positive.
    """
    return score(data, drop_dontcare=True)


PLUGIN = Definition(
    "mwzeval_gold",
    'as mwzeval, gold slots that accept "dontcare" dropped as that package does on MultiWOZ 2.2',
    SOURCE,
    MEASURES,
    compute,
    "multiwoz",
)
