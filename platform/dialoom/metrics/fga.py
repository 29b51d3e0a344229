"""Flexible goal accuracy."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, fga_errors, mean_over_turns

LAMBDAS = (0.5, 0.25, 0.75, 1.0)


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Mean over all turns of: 1 where the states are equal; 0 where the turn brings a new error; else, an old error
    that lasts, 1 - exp(-lambda (t - t_err)), t_err being the latest turn with a new error.

    A wrong turn brings a new error if it is the first, if the turn before was right, if gold has a pair that is new
    since the turn before and not predicted, or if the prediction has such a pair that gold has not. Larger lambda
    forgives sooner. "none" values are no pairs.
    """
    exact, since = data.once(fga_errors)
    return {
        f"lambda_{rate:g}": mean_over_turns(data, np.where(exact, 1.0, 1 - np.exp(-rate * since))) for rate in LAMBDAS
    }


PLUGIN = Definition(
    "fga",
    "flexible goal accuracy: errors that merely last are forgiven over time, for lambda .25, .5, .75, 1",
    f"Dey et al. 2022; {SOURCE}",
    tuple(Measure(f"lambda_{rate:g}", f"lambda = {rate:g}") for rate in LAMBDAS),
    compute,
)
