"""Gold that the bounded tracker cannot produce by rule, whatever the model: the cap on its scores, value by value.

Upsert cannot remove a slot, the validator turns some annotated values away, and it writes others in the schema's form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dialoom.dialogue import Dialogue, Speaker
from dialoom.methods.tracker.catalog import Catalog, qualified
from dialoom.methods.tracker.gold import gold_values
from dialoom.methods.tracker.proposal import Pair
from dialoom.methods.tracker.validator import DEFAULT_RULES, Rules, Validator
from dialoom.schema import Schema
from dialoom.state import SlotRef

REMOVED = "upsert.removed"
"""Gold removes a slot."""
NO_VALUE = "value.none"
"""Gold holds a word for "no value" as a value."""
REFORMED = "value.reformed"
"""The value is accepted, and then written in the schema's own form, which gold does not list."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """One annotated change that no answer brings about. ``turn`` counts all speakers; ``value`` is "" for a removal.

    ``rule`` is a rule of the validator, :data:`REMOVED`, :data:`NO_VALUE` or :data:`REFORMED`.
    """

    dialogue_id: str
    turn: int
    service: str
    slot: str
    value: str
    rule: str


def unreachable(
    dialogues: Iterable[Dialogue], schema: Schema, *, rules: Rules = DEFAULT_RULES, deletes: bool = False
) -> Iterator[Unreachable]:
    """Every change of gold out of reach, in the order of the data; a value is listed once, where it is first annotated.

    ``rules`` and ``deletes`` are those of the tracker's configuration. Dialogues without annotation give nothing.
    """
    validators: dict[tuple[str, ...], Validator] = {}
    for dialogue in dialogues:
        names = tuple(dialogue.services or schema.services)
        validator = validators.get(names)
        if validator is None:
            validator = validators[names] = Validator(Catalog(schema.subset(names)), rules, deletes=deletes)
        yield from _of_dialogue(dialogue, validator)


def _of_dialogue(dialogue: Dialogue, validator: Validator) -> Iterator[Unreachable]:
    held: dict[SlotRef, str] = {}
    gold: dict[SlotRef, tuple[str, ...]] = {}
    for index, turn in enumerate(dialogue.turns):
        if turn.speaker is not Speaker.USER or turn.frames is None:
            continue
        before, gold = gold, gold_values(turn, gold)
        for ref in before:
            if ref not in gold and ref in held:
                if not validator.deletes:
                    yield Unreachable(dialogue.dialogue_id, index, ref.service, ref.slot, "", REMOVED)
                else:
                    del held[ref]
        for ref, values in gold.items():
            if not values or values == before.get(ref) or held.get(ref) in values:
                continue
            form, rule = _nearest(validator, ref, values, held)
            if form is not None:
                held[ref] = form
            if rule:
                yield Unreachable(dialogue.dialogue_id, index, ref.service, ref.slot, values[0], rule)


def _nearest(
    validator: Validator, ref: SlotRef, values: tuple[str, ...], held: Mapping[SlotRef, str]
) -> tuple[str | None, str]:
    """The form that is written when gold is proposed, and the rule that keeps it from being gold ("" for none)."""
    fallback: tuple[str | None, str] | None = None
    for value in values:
        pair = Pair(qualified(ref.service, ref.slot), value)
        verdict = validator.slots([pair], validator.catalog.slots, held)
        form = verdict.delta.get(ref)
        if form in values:
            return form, ""
        if fallback is None:
            if form is not None:
                fallback = form, REFORMED
            else:
                fallback = None, verdict.problems[0].rule if verdict.problems else NO_VALUE
    return fallback or (None, NO_VALUE)
