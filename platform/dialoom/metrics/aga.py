"""Average goal accuracy."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, mean_over_turns, pairs


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Mean of |G and P| / |G| over the turns whose gold G is not empty. Spurious predictions cost nothing, and values
    "none" are no pairs.
    """
    found = data.once(pairs)
    share = np.divide(found.n_both, found.n_gold, out=np.zeros(data.n_turns), where=found.n_gold > 0)
    return {"accuracy": mean_over_turns(data, share, found.n_gold > 0)}


PLUGIN = Definition(
    "aga",
    "average goal accuracy: share of gold's slots that are right, turns with any",
    f"Rastogi et al. 2020; {SOURCE}",
    (Measure("accuracy", "mean share of gold slots that are right"),),
    compute,
)
