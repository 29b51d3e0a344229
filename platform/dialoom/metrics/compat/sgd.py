"""The official evaluation of the Schema-Guided Dialogue data set (DSTC8), in all its settings.

Source: google-research ``schema_guided_dst`` (metrics.py, evaluate.py). Kept on purpose:

* a frame's joint goal is the *product* of its slots' scores, so fuzzy scores make it fractional;
* a predicted slot counts by presence alone, and a wrong free-text value still earns its similarity;
* a gold list entry is any of its forms for free text, but only its first form for a categorical slot;
* average goal looks at gold's slots only: spurious predictions do not lower it;
* frames where requested slots are empty on both sides count, with an F1 of 1;
* every number is a mean over frames: no averaging over services or dialogues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dialoom.metric import Bools, Definition, Floats, Grouping, Ints, Measure, Measured, mean_of
from dialoom.metrics._columns import find_keys, once_per_pair
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import Ratio, token_sort_ratio

SOURCE = "Rastogi et al. 2020, DSTC8 schema-guided track; google-research/schema_guided_dst at 0c1bbe5fc971"

MEASURES = (
    Measure("joint_goal_accuracy", "product of all slot scores of a frame"),
    Measure("joint_cat_accuracy", "product over categorical slots, frames of services that have any"),
    Measure("joint_noncat_accuracy", "product over free-text slots, frames of services that have any"),
    Measure("average_goal_accuracy", "mean score of the slots in gold, frames with any"),
    Measure("average_cat_accuracy", "the same over categorical slots"),
    Measure("average_noncat_accuracy", "the same over free-text slots"),
    Measure("active_intent_accuracy", "share of frames with the right active intent", needs="intent"),
    Measure("requested_slots_f1", "F1 of the slots the user asks for, a frame", needs="requested_slots"),
    Measure("requested_slots_precision", "precision of the same", needs="requested_slots"),
    Measure("requested_slots_recall", "recall of the same", needs="requested_slots"),
    Measure("slot_tagging_f1", "F1 of the marked spans of free-text slots, a frame", needs="slot_spans"),
    Measure("slot_tagging_precision", "precision of the same", needs="slot_spans"),
    Measure("slot_tagging_recall", "recall of the same", needs="slot_spans"),
)


@dataclass(frozen=True)
class FrameScores:
    """One entry a frame; ``nan`` where a frame has no value for a measure."""

    values: Mapping[str, Floats]
    turn: Ints
    service: Ints


def frame_scores(data: ScoreInput, ratio: Ratio | None) -> FrameScores:
    """Every measure of every gold frame. ``ratio`` is the fuzzy back end; ``None`` compares free text exactly."""
    frames = data.frames
    has_cat, has_free = _kinds_of_services(data)
    at, score, categorical, in_gold = _slot_scores(data, ratio)
    n = len(frames.turn)
    values = {
        "joint_goal_accuracy": _product(at, score, n),
        "joint_cat_accuracy": _where(_product(at[categorical], score[categorical], n), has_cat[frames.service]),
        "joint_noncat_accuracy": _where(_product(at[~categorical], score[~categorical], n), has_free[frames.service]),
        "average_goal_accuracy": _mean(at[in_gold], score[in_gold], n),
        "average_cat_accuracy": _mean(at[in_gold & categorical], score[in_gold & categorical], n),
        "average_noncat_accuracy": _mean(at[in_gold & ~categorical], score[in_gold & ~categorical], n),
    }
    intents = (frames.gold_intent == frames.pred_intent).astype(np.float64)
    values["active_intent_accuracy"] = _where(intents, (frames.gold_intent >= 0) & (frames.pred_intent >= 0))
    for prefix, gold, pred in (
        ("requested_slots", frames.gold_requested, frames.pred_requested),
        ("slot_tagging", frames.gold_spans, frames.pred_spans),
    ):
        scores = list_scores(data, gold, pred, spans=prefix == "slot_tagging")
        values |= {
            f"{prefix}_{name}": column for name, column in zip(("f1", "precision", "recall"), scores, strict=True)
        }
    return FrameScores(values, frames.turn, frames.service)


def _kinds_of_services(data: ScoreInput) -> tuple[Bools, Bools]:
    """By service id: whether its schema has categorical slots, and free-text slots."""
    kinds = [
        {s.is_categorical for s in data.schema[name].slots} if name in data.schema else set() for name in data.services
    ]
    return np.array([True in k for k in kinds] or [False]), np.array([False in k for k in kinds] or [False])


def _slot_scores(data: ScoreInput, ratio: Ratio | None) -> tuple[Ints, Floats, Bools, Bools]:
    """Slots that are in the schema and filled on a side, for the services with a gold frame.

    Returns frame index, score, whether the slot is categorical, whether gold has it. Slots filled on neither side score
    1 and change no product.
    """
    width = max(len(data.services), 1)
    frame_keys = data.frames.turn * width + data.frames.service
    rows = data.aligned
    known = np.full(max(len(data.slots), 1), -1, dtype=np.int64)
    for i, (service, name) in enumerate(data.slots):
        if service in data.schema and name in data.schema[service].slot_by_name:
            known[i] = data.schema[service].slot_by_name[name].is_categorical
    at = find_keys(frame_keys, rows.turn * width + data.slot_service[rows.slot])
    inside = (at >= 0) & (known[rows.slot] >= 0)
    at, gold, pred = at[inside], rows.gold[inside], rows.pred[inside]
    categorical = known[rows.slot[inside]] == 1
    score = np.zeros(len(at))
    both = (gold >= 0) & (pred >= 0)
    score[both & categorical] = (np.append(data.first, -2)[gold] == pred)[both & categorical]
    free = both & ~categorical
    score[free] = once_per_pair(gold[free], pred[free], partial(_free_text, data, ratio))
    return at, score, categorical, gold >= 0


def _free_text(data: ScoreInput, ratio: Ratio | None, gold: int, pred: int) -> float:
    predicted = data.values[pred]
    forms = [data.values[i] for i in data.accepted(gold)]
    if ratio is None:
        return float(predicted in forms)
    return max(token_sort_ratio(form, predicted, ratio) for form in forms) / 100


def _product(at: Ints, score: Floats, n: int) -> Floats:
    result = np.ones(n)
    np.multiply.at(result, at, score)
    return result


def _mean(at: Ints, score: Floats, n: int) -> Floats:
    counts = np.bincount(at, minlength=n)
    sums = np.bincount(at, weights=score, minlength=n)
    result: Floats = np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)
    return result


def _where(values: Floats, keep: Bools) -> Floats:
    return np.where(keep, values, np.nan)


def list_scores(data: ScoreInput, gold: Ints, pred: Ints, *, spans: bool = False) -> tuple[Floats, Floats, Floats]:
    """F1, precision and recall of each pair of list ids, as multisets; ``nan`` where either id is -1."""
    both = (gold >= 0) & (pred >= 0)
    result = []
    for part in range(3):
        column = np.full(len(gold), np.nan)
        score: Callable[[int, int], float] = partial(_list_score, data, spans, part)
        column[both] = once_per_pair(gold[both], pred[both], score)
        result.append(column)
    return result[0], result[1], result[2]


def _list_score(data: ScoreInput, spans: bool, part: int, gold: int, pred: int) -> float:
    wanted, given = _counted(data.lists[gold], spans), _counted(data.lists[pred], spans)
    common = sum((wanted & given).values())
    precision = common / sum(given.values()) if given else 1.0
    recall = common / sum(wanted.values()) if wanted else 1.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return (f1, precision, recall)[part]


def _counted(items: tuple[str, ...], spans: bool) -> Counter[Any]:
    return Counter(zip(items[::2], items[1::2], strict=True)) if spans else Counter(items)


def official(data: ScoreInput, ratio: Ratio | None, *, across_turn: bool = False) -> dict[str, Measured]:
    """All measures, overall and by service, domain, seen and unseen services, and turn."""
    scores = frame_scores(data, ratio)
    result = {}
    for measure in MEASURES:
        values = scores.values[measure.name]
        if across_turn and measure.name.startswith("joint_"):
            result[measure.name] = _across_turn(data, scores, values)
            continue
        kept = ~np.isnan(values)
        turn = scores.turn[kept]
        groups = data.service_grouping(scores.service[kept]) | data.turn_grouping(turn)
        result[measure.name] = mean_of(values[kept], data.dialogue[turn], data.n_dialogues, groups)
    return result


def _across_turn(data: ScoreInput, scores: FrameScores, values: Floats) -> Measured:
    """Frames of a turn multiplied within each collection, then the mean over the turns that have any."""
    kept = ~np.isnan(values)
    turn, values, service = scores.turn[kept], values[kept], scores.service[kept]
    dialogue = data.dialogue
    turns, product = _by_turn(turn, values)
    overall = mean_of(product, dialogue[turns], data.n_dialogues, data.turn_grouping(turns))
    by = dict(overall.by)
    for kind, grouping in data.service_grouping(service).items():
        width = len(grouping.labels)
        keys, product = _by_turn(turn * width + grouping.codes, values)
        group = {kind: Grouping(grouping.labels, keys % width)}
        by |= mean_of(product, dialogue[keys // width], data.n_dialogues, group).by
    return Measured(overall.overall, by, overall.sums, overall.combine)


def _by_turn(key: Ints, values: Floats) -> tuple[Ints, Floats]:
    keys, inverse = np.unique(key, return_inverse=True)
    return keys, _product(inverse, values, len(keys))


def definition(
    name: str,
    meaning: str,
    compute: Callable[[ScoreInput], Mapping[str, Measured]],
    *,
    data: str = "frames",
) -> Definition:
    """A definition with the official measures."""
    return Definition(name, meaning, SOURCE, MEASURES, compute, data)
