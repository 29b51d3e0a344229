"""Units that have ended and are not committed yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dialoom.outcome import Outcome
from dialoom.runtime.unit_context import Row
from dialoom.unit import UnitKey

Finished = tuple[UnitKey, Outcome, dict[str, list[Row]]]
"""A unit that has ended, and its rows by table."""

UNWRITABLE = (TypeError, ValueError, KeyError, AttributeError, OverflowError)
"""What Arrow (whose errors are kinds of these) and Unicode say of values that fit no column."""


def together(units: Sequence[Finished]) -> dict[str, list[Row]]:
    """The rows of all units, by table."""
    tables: dict[str, list[Row]] = {}
    for _, _, rows in units:
        for table, found in rows.items():
            tables.setdefault(table, []).extend(found)
    return tables


@dataclass(slots=True)
class Pending:
    """Finished units that are not committed yet."""

    done: list[tuple[UnitKey, Outcome]] = field(default_factory=list)
    batches: dict[str, list[Any]] = field(default_factory=dict)
    message_ids: set[str] = field(default_factory=set)

    def followed_by(self, other: Pending) -> Pending:
        """Both together, these first."""
        tables = self.batches.keys() | other.batches.keys()
        return Pending(
            self.done + other.done,
            {t: self.batches.get(t, []) + other.batches.get(t, []) for t in tables},
            self.message_ids | other.message_ids,
        )
