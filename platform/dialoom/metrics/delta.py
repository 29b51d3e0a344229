"""What each turn changed: accuracy and F1 of the update alone."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured, mean_of
from dialoom.metrics._input import ScoreInput, align, changes
from dialoom.metrics.slot_f1 import counted


def compute(data: ScoreInput) -> dict[str, Measured]:
    """A turn's delta is the difference of its state to the same side's state one labelled turn before: slots that are
    new or have a new value, and dropped slots with the value "[DELETE]". An early error is so counted once and not in
    every later turn.

    Accuracy is the share of turns whose two deltas are equal (empty ones too); F1, precision and recall count changed
    slots over the corpus. A gold slot has changed when the two turns accept no form in common.
    """
    rows = align(data, changes(data, data.gold), changes(data, data.pred))
    right = np.bincount(rows.turn[~rows.match], minlength=data.n_turns) == 0
    busy = np.flatnonzero(np.bincount(rows.turn[rows.gold >= 0], minlength=data.n_turns))
    counts = counted(data, rows)
    return {
        "accuracy": mean_of(right, data.dialogue, data.n_dialogues, data.turn_groups),
        "accuracy_where_gold_changes": mean_of(
            right[busy], data.dialogue[busy], data.n_dialogues, data.turn_grouping(busy)
        ),
        **counts,
    }


PLUGIN = Definition(
    "delta",
    "accuracy and F1 of what each turn changes in the state",
    "own; turn-level delta accuracy as ReacTOD reports it",
    (
        Measure("accuracy", "share of turns whose change is right"),
        Measure("accuracy_where_gold_changes", "the same over turns where gold changes"),
        Measure("f1", "micro F1 of changed slots"),
        Measure("precision", "share of predicted changes that are right"),
        Measure("recall", "share of gold changes that are found"),
    ),
    compute,
)
