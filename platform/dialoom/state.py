"""Belief states: what has been said so far, as one value per service and slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class SlotRef(NamedTuple):
    """A slot of a service."""

    service: str
    slot: str


DELETE = "[DELETE]"
"""The value that removes a slot, in the variant that allows it."""

Delta = Mapping[SlotRef, str]
"""What one turn changes: slot to new value."""


class BeliefState(Mapping[SlotRef, str]):
    """An immutable map from slot to value; ``upsert`` gives a new state and leaves this one as it is."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[SlotRef, str] | Iterable[tuple[SlotRef, str]] = ()) -> None:
        self._values: dict[SlotRef, str] = dict(values)

    def __getitem__(self, ref: SlotRef) -> str:
        return self._values[ref]

    def __iter__(self) -> Iterator[SlotRef]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BeliefState):
            return self._values == other._values
        return NotImplemented

    def __repr__(self) -> str:
        return f"BeliefState({self._values!r})"

    def upsert(self, delta: Delta, *, deletes: bool = False) -> BeliefState:
        """The state after ``delta``: new slots added, named slots overwritten, all others kept.

        With ``deletes`` a value of :data:`DELETE` removes its slot; without, it is an ordinary value.
        """
        if not delta:
            return self
        merged = {**self._values, **delta}
        if deletes:
            merged = {ref: value for ref, value in merged.items() if value != DELETE}
        return BeliefState(merged)

    def of(self, service: str) -> dict[str, str]:
        """Slot to value for one service, in the order the slots were first set."""
        return {ref.slot: value for ref, value in self._values.items() if ref.service == service}
