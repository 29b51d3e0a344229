"""What a metric definition is: one published (or own) way to turn gold and predictions into figures.

A definition is one module in ``dialoom.metrics`` with a ``PLUGIN`` of type :class:`Definition`. It names its measures
(JGA, precision, ...), and one function computes them all from the common input,
:class:`~dialoom.metrics._input.ScoreInput`. Every figure is a function of sums over dialogues, so that intervals and
paired tests can resample dialogues without scoring again.

All accuracies, precisions, recalls and F1 are fractions in [0, 1], also where the published evaluator prints percent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dialoom.metrics._input import ScoreInput

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Combine = Callable[[Floats], Floats]
"""Sums of shape (k, ...) to the figure, shape (...); ``nan`` where it is undefined."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a definition. ``needs`` is the output it judges: ``state``, ``intent``, ``requested_slots``,
    ``slot_spans``, or "" for figures that judge no prediction (tokens, latency)."""

    name: str
    meaning: str
    needs: str = "state"
    higher_is_better: bool | None = True
    """``None`` where neither direction is better."""
    unit: str = "fraction"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value over ``n`` turns, frames, slots or calls (the measure's own unit of counting); ``None``: not defined."""

    value: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure's overall figure, its breakdowns by kind and label, and the sums behind the overall figure.

    ``sums`` has shape (k, dialogues); ``combine(sums.sum(axis=1))`` is the overall value. ``None`` where a figure
    (a percentile) is no function of sums.
    """

    overall: Figure
    by: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    sums: Floats | None = None
    combine: Combine | None = None
    keys: tuple[str, ...] = ()
    """Where the sums are blocks of one row a service: the services, in order."""


NULL = Measured(Figure(None, 0))
"""The score of an output that was not declared, or of nothing."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Puts each row into one group, or none (code -1). ``codes`` has one entry a row and indexes ``labels``."""

    labels: Sequence[str]
    codes: Ints


@dataclass(frozen=True)
class Definition:
    """A named way of scoring. The docstring of ``compute`` holds the formula and the oddities kept on purpose.

    ``measures[0]`` is the headline. ``data`` says for which data it is computed unless asked for by name: ``any``,
    ``frames`` (gold per active service, as SGD), ``multiwoz`` (gold is the whole state, MultiWOZ domains).
    """

    name: str
    meaning: str
    source: str
    measures: tuple[Measure, ...]
    compute: Callable[[ScoreInput], Mapping[str, Measured]]
    data: str = "any"

    @property
    def headline(self) -> Measure:
        """The measure that stands for the definition in a table."""
        return self.measures[0]

    @property
    def formula(self) -> str:
        """The docstring of ``compute``."""
        return inspect.getdoc(self.compute) or ""

    def score(self, data: ScoreInput, declares: frozenset[str]) -> dict[str, Measured]:
        """Every measure by name, in order; :data:`NULL` for those that judge an output that is not in ``declares``, and
        where nothing is labelled.
        """
        allowed = [m for m in self.measures if not m.needs or (m.needs in declares and data.n_turns)]
        if not allowed:
            return {m.name: NULL for m in self.measures}
        found = self.compute(data)
        return {m.name: found.get(m.name, NULL) if m in allowed else NULL for m in self.measures}


def ratio(sums: Floats) -> Floats:
    """First over second sum; ``nan`` where the second is 0."""
    result: Floats = np.divide(sums[0], sums[1], out=np.full(np.shape(sums[1]), np.nan), where=sums[1] != 0)
    return result


def precision(sums: Floats) -> Floats:
    """From sums of true positives, false positives, false negatives; ``nan`` where nothing was predicted."""
    return ratio(np.stack([sums[0], sums[0] + sums[1]]))


def recall(sums: Floats) -> Floats:
    """From sums of true positives, false positives, false negatives; ``nan`` where gold is empty."""
    return ratio(np.stack([sums[0], sums[0] + sums[2]]))


def f1(sums: Floats) -> Floats:
    """From sums of true positives, false positives, false negatives; ``nan`` where both sides are empty."""
    return ratio(np.stack([2 * sums[0], 2 * sums[0] + sums[1] + sums[2]]))


def measured(
    stats: Sequence[npt.NDArray[np.generic]],
    dialogue: Ints,
    n_dialogues: int,
    combine: Combine = ratio,
    by: Mapping[str, Grouping] | None = None,
) -> Measured:
    """Sum the ``k`` columns of ``stats`` (one entry a row) over dialogues, overall and in every group.

    ``dialogue`` is each row's dialogue index. A row counts once in each grouping it has a code in.
    """
    return measured_each(stats, dialogue, n_dialogues, {"": combine}, by)[""]


def measured_each(
    stats: Sequence[npt.NDArray[np.generic]],
    dialogue: Ints,
    n_dialogues: int,
    combines: Mapping[str, Combine],
    by: Mapping[str, Grouping] | None = None,
) -> dict[str, Measured]:
    """:func:`measured` for several figures of the same sums."""
    columns = [np.asarray(s, dtype=np.float64) for s in stats]
    sums = np.stack([_summed(dialogue, c, n_dialogues) for c in columns])
    grouped = {kind: (g.labels, *_group_sums(columns, g)) for kind, g in (by or {}).items()}
    found = {}
    for name, combine in combines.items():
        groups = {kind: _figures(labels, counts, combine(s)) for kind, (labels, counts, s) in grouped.items()}
        overall = Figure(value_of(combine, sums.sum(axis=1)), len(dialogue))
        found[name] = Measured(overall, groups, sums, combine)
    return found


def mean_of(
    values: npt.NDArray[np.generic],
    dialogue: Ints,
    n_dialogues: int,
    by: Mapping[str, Grouping] | None = None,
) -> Measured:
    """The plain mean of one value a row."""
    return measured([values, np.ones(len(dialogue))], dialogue, n_dialogues, ratio, by)


def _summed(codes: Ints, weights: Floats, size: int) -> Floats:
    return np.bincount(codes, weights=weights, minlength=size).astype(np.float64)


def _group_sums(columns: list[Floats], grouping: Grouping) -> tuple[Ints, Floats]:
    """Rows and summed columns of each group."""
    inside = grouping.codes >= 0
    size = len(grouping.labels)
    if inside.all():
        codes, kept = grouping.codes, columns
    else:
        codes, kept = grouping.codes[inside], [c[inside] for c in columns]
    return np.bincount(codes, minlength=size), np.stack([_summed(codes, c, size) for c in kept])


def _figures(labels: Sequence[str], counts: Ints, values: Floats) -> dict[str, Figure]:
    return {
        label: Figure(None if np.isnan(value) else float(value), int(n))
        for label, n, value in zip(labels, counts, values, strict=True)
        if n
    }


def value_of(combine: Combine, sums: Floats) -> float | None:
    """``combine`` of one vector of sums as a plain number, ``None`` where undefined."""
    value = float(combine(sums))
    return None if np.isnan(value) else value
