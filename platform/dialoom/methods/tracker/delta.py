"""Deltas: what a proposal changes in a state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dialoom.state import DELETE, BeliefState, SlotRef


def changes(values: Mapping[SlotRef, str], state: BeliefState) -> dict[SlotRef, str]:
    """``values`` without those that ``state`` has already."""
    return {ref: value for ref, value in values.items() if state.get(ref) != value}


def state_changes(values: Mapping[SlotRef, str], state: BeliefState, services: Collection[str]) -> dict[SlotRef, str]:
    """What leads from ``state`` to one that holds, of ``services``, ``values`` and nothing else."""
    removed = {ref: DELETE for ref in state if ref.service in services and ref not in values}
    return changes({r: v for r, v in values.items() if v != DELETE}, state) | removed
