"""Improved average goal accuracy."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured, measured
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, pairs


def compute(data: ScoreInput) -> dict[str, Measured]:
    """The sum over turns of |G and P| / |G or P| (turns where the union is empty add nothing), divided by the number of
    turns whose *gold* is not empty. Kept on purpose: that is not the number of turns summed, so turns with spurious
    predictions against an empty gold are in neither. "none" values are no pairs.
    """
    found = data.once(pairs)
    union = found.n_gold + found.n_pred - found.n_both
    share = np.divide(found.n_both, union, out=np.zeros(data.n_turns), where=union > 0)
    stats = [share, found.n_gold > 0]
    return {"accuracy": measured(stats, data.dialogue, data.n_dialogues, by=data.turn_groups)}


PLUGIN = Definition(
    "iaga",
    "improved average goal accuracy: overlap of the two states, turns with any gold",
    SOURCE,
    (Measure("accuracy", "summed overlap over turns with gold"),),
    compute,
)
