"""Granular change accuracy."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Figure, Floats, Grouping, Measure, Measured, measured, ratio
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.gca import SOURCE, gca, gca_counts, label_grouping

KINDS = ("correct", "wrong", "over", "missed")


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Scores changes, not states, so that an error is counted once, when it is made. Each side's labels (domain and
    slot) hold a value; one that was seen and is gone holds "none". A label changes when its value differs from the
    same side's turn before.

    Gold changes: never predicted label, missed (correct if the new value is "none"); same value, correct; gold "none"
    and another prediction, over-predicted; else wrong. Predicted changes: label never in gold, over-predicted (correct
    if "none"); equal to gold and not yet counted correct in this turn, correct; "none", missed; different and not yet
    counted wrong in this turn, wrong. Kept on purpose: both sides dropping a slot at once is one correct and one
    missed; a late repair is correct.

    With C, W, O, M over the corpus, D1 = C+W+O, D2 = C+W+M and a = 10/11: precision C/D1, recall C/D2, label precision
    (C+W)/D1, label recall (C+W)/D2, and GCA is their weighted harmonic mean,
    (D1+D2) / [(D1^2+D2^2)(a/C + (1-a)/(C+W))]; 0 where C = 0.
    """
    turns, labels = gca_counts(data)
    turn = np.concatenate([turns[k] for k in KINDS])
    kind = np.repeat(np.arange(4), [len(turns[k]) for k in KINDS])
    stats = [(kind == i).astype(np.float64) for i in range(4)]
    groups: dict[str, Grouping] = label_grouping(data, np.concatenate([labels[k] for k in KINDS]))
    groups |= data.turn_grouping(turn)
    dialogue, n = data.dialogue[turn], data.n_dialogues
    result = {"gca": measured(stats, dialogue, n, gca, groups)}
    for name, combine in (
        ("precision", _precision),
        ("recall", _recall),
        ("label_precision", _label_precision),
        ("label_recall", _label_recall),
    ):
        result[name] = measured(stats, dialogue, n, combine)
    for i, k in enumerate(KINDS):
        result[k] = Measured(Figure(float(stats[i].sum()), len(turn)))
    return result


def _precision(sums: Floats) -> Floats:
    return ratio(np.stack([sums[0], sums[0] + sums[1] + sums[2]]))


def _recall(sums: Floats) -> Floats:
    return ratio(np.stack([sums[0], sums[0] + sums[1] + sums[3]]))


def _label_precision(sums: Floats) -> Floats:
    return ratio(np.stack([sums[0] + sums[1], sums[0] + sums[1] + sums[2]]))


def _label_recall(sums: Floats) -> Floats:
    return ratio(np.stack([sums[0] + sums[1], sums[0] + sums[1] + sums[3]]))


PLUGIN = Definition(
    "gca",
    "granular change accuracy: weighted harmonic mean over correct, wrong, over-predicted and missed changes",
    SOURCE,
    (
        Measure("gca", "the score"),
        Measure("precision", "correct over correct, wrong and over-predicted"),
        Measure("recall", "correct over correct, wrong and missed"),
        Measure("label_precision", "right slots, whatever their value, over predicted changes"),
        Measure("label_recall", "right slots, whatever their value, over gold changes"),
        Measure("correct", "correct changes", unit="changes"),
        Measure("wrong", "changes with a wrong value", higher_is_better=False, unit="changes"),
        Measure("over", "over-predicted changes", higher_is_better=False, unit="changes"),
        Measure("missed", "missed changes", higher_is_better=False, unit="changes"),
    ),
    compute,
)
