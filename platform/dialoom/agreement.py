"""How far a judge model agrees with people: agreement of two sets of labels for the same items."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dialoom.errors import DataError
from dialoom.metric import Floats
from dialoom.stats import Interval, Resampling, percentile_interval
from dialoom.tabular import Cell, Column, Table

ITEM_FIELDS = ("item", "id", "dialogue_id")
LABEL_FIELDS = ("label", "verdict", "answer")


@dataclass(frozen=True)
class Agreement:
    """Agreement over the ``n`` items that both have labelled.

    ``kappa`` is Cohen's: (observed - expected) / (1 - expected), expected from both sides' label frequencies; ``None``
    where both use one label only. ``weighted`` is the same with squared distances between labels in order, for labels
    that are numbers. ``confusion`` maps (judge's label, person's label) to a count.
    """

    n: int
    observed: float
    kappa: float | None
    interval: Interval | None
    weighted: float | None
    confusion: Mapping[tuple[str, str], int]
    unmatched: int
    """Items that only one side has labelled."""

    @property
    def labels(self) -> list[str]:
        """All labels, numbers in order."""
        return _ordered({label for pair in self.confusion for label in pair})

    def table(self) -> Table:
        """The confusion matrix: a row a judge's label, a column a person's."""
        rows: list[tuple[Cell, ...]] = [(j, *(self.confusion.get((j, h), 0) for h in self.labels)) for j in self.labels]
        kappa = "–" if self.kappa is None else f"{self.kappa:.3f}"
        ends = "" if self.interval is None else f" [{self.interval.low:.3f}, {self.interval.high:.3f}]"
        note = f"{self.n} items, agreement {100 * self.observed:.2f} %, Cohen's kappa {kappa}{ends}"
        left = (f"{self.unmatched} items have one label only and are left out.",) if self.unmatched else ()
        columns = (Column("judge \\ human"), *(Column(label, "count") for label in self.labels))
        return Table("Agreement", columns, tuple(rows), (note, *left))


def agreement(
    judge: Mapping[str, str],
    human: Mapping[str, str],
    *,
    resampling: Resampling = Resampling(),  # noqa: B008 - frozen
) -> Agreement:
    """Agreement of two maps from item to label. The interval is by bootstrap over items.

    Raises DataError where no item has both labels.
    """
    shared = sorted(judge.keys() & human.keys())
    if not shared:
        hint = "Both sides must name items in the same way."
        raise DataError("no item is labelled by both sides", hint=hint)
    pairs = [(judge[item], human[item]) for item in shared]
    labels = _ordered({label for pair in pairs for label in pair})
    codes = np.array([[labels.index(a), labels.index(b)] for a, b in pairs])
    matrix = _matrix(codes, len(labels))
    return Agreement(
        n=len(shared),
        observed=float(np.trace(matrix) / len(shared)),
        kappa=_kappa(matrix, 1.0 - np.eye(len(labels))),
        interval=_interval(codes, len(labels), resampling),
        weighted=_kappa(matrix, _distances(labels)) if _numbers(labels) else None,
        confusion=dict(Counter(pairs)),
        unmatched=len(judge.keys() ^ human.keys()),
    )


def _matrix(codes: Any, n: int) -> Floats:
    counts = np.bincount(codes[:, 0] * n + codes[:, 1], minlength=n * n)
    return counts.reshape(n, n).astype(np.float64)


def _kappa(matrix: Floats, disagreement: Floats) -> float | None:
    """1 - observed over expected disagreement; ``None`` where none is expected."""
    total = matrix.sum()
    expected = np.outer(matrix.sum(axis=1), matrix.sum(axis=0)) / total
    chance = float((disagreement * expected).sum())
    return 1.0 - float((disagreement * matrix).sum()) / chance if chance > 0 else None


def _interval(codes: Any, n: int, resampling: Resampling) -> Interval | None:
    if len(codes) < 2:
        return None
    rng = np.random.default_rng(resampling.seed)
    disagreement = 1.0 - np.eye(n)
    draws = (codes[rng.integers(0, len(codes), len(codes))] for _ in range(resampling.resamples))
    values = [_kappa(_matrix(draw, n), disagreement) for draw in draws]
    return percentile_interval(np.array([np.nan if v is None else v for v in values]), resampling.level)


def _numbers(labels: Sequence[str]) -> bool:
    try:
        return len([float(label) for label in labels]) > 1
    except ValueError:
        return False


def _distances(labels: Sequence[str]) -> Floats:
    values = np.array([float(label) for label in labels])
    squared: Floats = (values[:, None] - values[None, :]) ** 2
    return squared


def _ordered(labels: set[str]) -> list[str]:
    return sorted(labels, key=float) if _numbers(sorted(labels)) else sorted(labels)


def read_labels(path: Path) -> dict[str, str]:
    """Labels by item from a CSV or JSON-lines file with the columns ``item`` and ``label``.

    ``id`` or ``dialogue_id`` may stand for ``item``, ``verdict`` or ``answer`` for ``label``. Raises DataError with the
    line where a column is missing, an item comes twice, or the file cannot be read.
    """
    found: dict[str, str] = {}
    for line, record in _records(path):
        where = f"{path}:{line}"
        item = _field(record, ITEM_FIELDS, where)
        if item in found:
            raise DataError(f"item {item} comes twice", where=where, hint="Keep one label for each item.")
        found[item] = _field(record, LABEL_FIELDS, where)
    return found


def _records(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from error
    if path.suffix == ".csv":
        reader = csv.DictReader(text.splitlines())
        return [(reader.line_num, row) for row in reader]
    records: list[tuple[int, Mapping[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise DataError(f"not valid JSON: {error.msg}", where=f"{path}:{number}") from error
            if not isinstance(record, dict):
                raise DataError("a line should be an object", where=f"{path}:{number}")
            records.append((number, record))
    return records


def _field(record: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    for name in names:
        if record.get(name) not in (None, ""):
            value = record[name]
            return str(value).lower() if isinstance(value, bool) else str(value)
    raise DataError(f"no {names[0]}", where=where, hint=f"Columns that may hold it: {', '.join(names)}.")
