"""What the variants that are given something take from the annotation: the state before a turn, a turn's intents."""

from __future__ import annotations

from collections.abc import Mapping

from dialoom.dialogue import Turn
from dialoom.methods.tracker.catalog import Catalog, IntentRef
from dialoom.schema import NO_INTENT
from dialoom.state import BeliefState, SlotRef

Values = Mapping[SlotRef, tuple[str, ...]]
"""Each slot with all its acceptable values."""


def gold_values(turn: Turn, before: Values) -> dict[SlotRef, tuple[str, ...]]:
    """The annotated state after ``turn``: services without a frame keep what they had."""
    frames = turn.frames or ()
    named = {frame.service for frame in frames}
    kept = {ref: values for ref, values in before.items() if ref.service not in named}
    return kept | {SlotRef(f.service, slot): values for f in frames for slot, values in f.slot_values.items()}


def gold_state(values: Values, previous: BeliefState = BeliefState()) -> BeliefState:  # noqa: B008
    """The state that holds of each slot its previous value where that is still acceptable, else the first."""
    return BeliefState({r: p if (p := previous.get(r)) in v else v[0] for r, v in values.items() if v})


def gold_intents(turn: Turn, before: Values, after: Values, catalog: Catalog) -> tuple[IntentRef, ...]:
    """The annotated intents of ``turn``; where the data has none, an intent of each service whose slots change."""
    found: dict[IntentRef, None] = {}
    for frame in turn.frames or ():
        service = catalog.services.get(frame.service)
        if service is None:
            continue
        if frame.active_intent is None:
            changed = any(before.get(ref) != after.get(ref) for ref in (*before, *after) if ref.service == service.name)
            if changed and service.intents:
                found[IntentRef(service.name, service.intents[0].name)] = None
        elif frame.active_intent != NO_INTENT and frame.active_intent in service.intent_by_name:
            found[IntentRef(service.name, frame.active_intent)] = None
    return tuple(found)
