"""Micro-averaged precision, recall and F1 of filled slots."""

from __future__ import annotations

from dialoom.metric import Definition, Grouping, Measure, Measured, f1, measured_each, precision, recall
from dialoom.metrics._input import Alignment, ScoreInput

MEASURES = (
    Measure("f1", "2 TP / (2 TP + FP + FN) over the corpus"),
    Measure("precision", "share of predicted slots that are right"),
    Measure("recall", "share of gold slots that are right"),
)


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Counts over all turns' states: TP a slot that both sides fill, with an accepted value; FP any other predicted
    slot; FN any other gold slot. A wrong value is one FP and one FN. Broken down by service, by slot and by turn.
    """
    return counted(data, data.aligned)


def counted(data: ScoreInput, rows: Alignment) -> dict[str, Measured]:
    """F1, precision and recall over aligned rows."""
    right = rows.match
    stats = [right, (rows.pred >= 0) & ~right, (rows.gold >= 0) & ~right]
    groups = data.service_grouping(data.slot_service[rows.slot]) | data.turn_grouping(rows.turn)
    groups["slot"] = Grouping([f"{ref.service}/{ref.slot}" for ref in data.slots], rows.slot)
    combines = {"f1": f1, "precision": precision, "recall": recall}
    return measured_each(stats, data.dialogue[rows.turn], data.n_dialogues, combines, groups)


PLUGIN = Definition(
    "slot_f1",
    "precision, recall and F1 of the slots of every turn's state, micro-averaged",
    "own; the usual slot F1 of the field, as ReacTOD reports MultiWOZ",
    MEASURES,
    compute,
)
