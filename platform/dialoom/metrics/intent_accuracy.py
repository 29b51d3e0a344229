"""Accuracy of the active intent."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Measure, Measured, mean_of
from dialoom.metrics._input import ScoreInput


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Share of gold frames whose predicted intent in force equals gold's; "NONE" is an ordinary value, and what a
    method predicts for a service that it does not list. Frames without a gold intent are left out. Turn accuracy asks
    for all frames of the turn.
    """
    frames = data.frames
    kept = np.flatnonzero((frames.gold_intent >= 0) & (frames.pred_intent >= 0))
    turn, right = frames.turn[kept], frames.gold_intent[kept] == frames.pred_intent[kept]
    groups = data.service_grouping(frames.service[kept]) | data.turn_grouping(turn)
    turns = np.unique(turn)
    wrong = np.bincount(turn[~right], minlength=data.n_turns)[turns]
    return {
        "accuracy": mean_of(right, data.dialogue[turn], data.n_dialogues, groups),
        "turn_accuracy": mean_of(wrong == 0, data.dialogue[turns], data.n_dialogues, data.turn_grouping(turns)),
    }


PLUGIN = Definition(
    "intent_accuracy",
    "accuracy of the active intent of each service",
    "Rastogi et al. 2020, active intent accuracy",
    (
        Measure("accuracy", "share of frames with the right intent", needs="intent"),
        Measure("turn_accuracy", "share of turns with every intent right", needs="intent"),
    ),
    compute,
)
