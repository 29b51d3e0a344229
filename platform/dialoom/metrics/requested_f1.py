"""F1 of the slots that the user asks for."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dialoom.metric import Definition, Measure, Measured, f1, mean_of, measured
from dialoom.metrics._columns import once_per_pair
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.sgd import list_scores


def compute(data: ScoreInput) -> dict[str, Measured]:
    """``micro_f1`` counts asked slots over the corpus, as multisets; a frame with nothing asked and nothing predicted
    adds nothing. ``macro_f1`` is the official SGD figure: the mean of each frame's F1, where such a frame counts as 1.
    """
    frames = data.frames
    kept = np.flatnonzero((frames.gold_requested >= 0) & (frames.pred_requested >= 0))
    gold, pred, turn = frames.gold_requested[kept], frames.pred_requested[kept], frames.turn[kept]
    counters = [Counter(items) for items in data.lists]
    found = once_per_pair(gold, pred, lambda g, p: float((counters[g] & counters[p]).total()))
    sizes = np.array([len(items) for items in data.lists])
    groups = data.service_grouping(frames.service[kept]) | data.turn_grouping(turn)
    dialogue, n = data.dialogue[turn], data.n_dialogues
    return {
        "micro_f1": measured([found, sizes[pred] - found, sizes[gold] - found], dialogue, n, f1, groups),
        "macro_f1": mean_of(list_scores(data, gold, pred)[0], dialogue, n, groups),
    }


PLUGIN = Definition(
    "requested_f1",
    "F1 of the slots that the user asks for",
    "Rastogi et al. 2020, requested slots F1 (macro_f1); micro_f1 is own",
    (
        Measure("micro_f1", "2 TP / (2 TP + FP + FN) over the corpus", needs="requested_slots"),
        Measure("macro_f1", "mean F1 of the frames", needs="requested_slots"),
    ),
    compute,
)
