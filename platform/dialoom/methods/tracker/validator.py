"""The symbolic validator: deterministic checks of a proposal, each rule with an identifier. No model, no side effect.

Families: *action* (is this step allowed now), *schema* (do names and values fit the schema), *coref* (is it an entity,
is a copy a copy), *ground* (can a value be traced to the dialogue; off by default).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from dialoom.methods.tracker.catalog import Catalog, IntentRef, SlotTable, name_key, qualified
from dialoom.methods.tracker.forms import EXPECTED, in_form, listed_form
from dialoom.methods.tracker.proposal import Pair
from dialoom.methods.tracker.referents import Referents, copied_name, is_dontcare, kinds_of, says_nothing
from dialoom.schema import DONTCARE, Slot, SlotType
from dialoom.state import DELETE, SlotRef
from dialoom.text import fold

RULES: Mapping[str, str] = {
    "action.not_parsable": "the answer holds no action in the protocol's form",
    "action.unknown_tool": "the tool does not exist",
    "action.malformed": "the arguments do not have the tool's form, or name a slot twice",
    "action.order": "slots before a confirmed intent",
    "action.intent_not_confirmed": "a slot that belongs to an intent which was not confirmed",
    "action.repeated": "the same call again within a turn",
    "action.after_end": "a call after the turn has ended",
    "schema.unknown_intent": "no such intent, or a name that several services share",
    "schema.unknown_slot": "no such slot",
    "schema.ambiguous_slot": "a slot name that several active services share",
    "schema.categorical": "a value outside the list of a categorical slot",
    "schema.type": "a value that does not have the slot's type",
    "coref.kind": "a value that only names a kind of thing, or points backwards",
    "coref.copy": "a value said to be that of another slot, which has no value or a different one",
    "ground.untraceable": "a free-text value found nowhere in the dialogue or state",
}
"""Every rule and what it rejects. The part before the dot is its family."""

FEW = 16
"""Allowed values are listed in feedback up to this many."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which families are on."""

    action: bool = True
    schema: bool = True
    coref: bool = True
    ground: bool = False


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Problem:
    """One rule that fired. ``label`` is the name the model used or saw, ``ref`` the slot where it is known."""

    rule: str
    label: str = ""
    value: str = ""
    expected: str = ""
    allowed: tuple[str, ...] = ()
    ref: SlotRef | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``delta`` holds every slot in the schema's own form, and is empty where there are ``problems``."""

    delta: Mapping[SlotRef, str]
    problems: tuple[Problem, ...] = ()


class Evidence(Protocol):
    """What has been said so far."""

    def holds(self, value: str) -> bool:
        """Whether ``value`` was said."""


class Validator:
    """The checks for one catalog. ``deletes`` admits the value that removes a slot."""

    def __init__(self, catalog: Catalog, rules: Rules = DEFAULT_RULES, *, deletes: bool = False) -> None:
        self.catalog = catalog
        self.rules = rules
        self.deletes = deletes
        self.referents = Referents(kinds_of(catalog.services))

    def intents(self, names: Sequence[str]) -> tuple[tuple[IntentRef, ...], tuple[Problem, ...]]:
        """The intents that ``names`` mean, each once; or the problems, and then no intent."""
        found: dict[IntentRef, None] = {}
        problems = []
        for name in names:
            refs = self.catalog.find_intent(name)
            if len(refs) == 1 or (refs and not self.rules.schema):
                found[refs[0]] = None
            elif self.rules.schema:
                labels = self.catalog.intent_labels
                allowed = [labels[ref] for ref in refs] if refs else list(labels.values())
                problems.append(Problem("schema.unknown_intent", value=name, allowed=_near(name, allowed)))
        return ((), tuple(problems)) if problems else (tuple(found), ())

    def slots(
        self,
        pairs: Sequence[Pair],
        table: SlotTable,
        known: Mapping[SlotRef, str],
        evidence: Evidence | None = None,
    ) -> Verdict:
        """Check one proposal as a whole: all of it is accepted, or none.

        ``table`` holds the slots that may be set, ``known`` the belief state before the turn.
        """
        problems: list[Problem] = []
        named: dict[SlotRef, Pair] = {}
        for pair in pairs:
            if not (pair.source and self.rules.coref) and not states_value(pair, table):
                continue
            ref = self._ref(pair, table, problems)
            if ref is None:
                continue
            earlier = named.setdefault(ref, pair)
            if earlier is not pair and fold(earlier.value) != fold(pair.value) and self.rules.action:
                problems.append(_problem("action.malformed", ref, table, pair.value, "one value a slot"))
        check = _Check(self, table, {**known, **{ref: p.value for ref, p in named.items()}}, known, evidence)
        delta: dict[SlotRef, str] = {}
        for ref, pair in named.items():
            checked = check.value(ref, pair)
            if isinstance(checked, Problem):
                problems.append(checked)
            elif checked is not None:
                delta[ref] = checked
        return Verdict({}, tuple(problems)) if problems else Verdict(delta)

    def _ref(self, pair: Pair, table: SlotTable, problems: list[Problem]) -> SlotRef | None:
        """The slot a pair means; where rules that are off would reject the name, the nearest guess."""
        refs = table.find(pair.name)
        if len(refs) == 1:
            return refs[0]
        rules = self.rules
        if refs:
            if not rules.schema:
                return refs[0]
            allowed = tuple(qualified(ref.service, ref.slot) for ref in refs)
            problems.append(Problem("schema.ambiguous_slot", pair.name, pair.value, allowed=allowed))
            return None
        elsewhere = self.catalog.slots.find(pair.name)
        if elsewhere and rules.action:
            ref = elsewhere[0] if len(elsewhere) == 1 else None
            allowed = tuple(dict.fromkeys(e.service for e in elsewhere))
            problem = Problem("action.intent_not_confirmed", pair.name, pair.value, allowed=allowed[:FEW], ref=ref)
            problems.append(problem)
            return None
        if elsewhere or not rules.schema:
            return elsewhere[0] if elsewhere else unknown_ref(pair.name, table)
        allowed = _near(pair.name, list(table.labels.values()))
        problems.append(Problem("schema.unknown_slot", pair.name, pair.value, allowed=allowed))
        return None


def states_value(pair: Pair, table: SlotTable) -> bool:
    """Whether ``pair`` gives a value, and not only a word for having none; "none" counts where the slot lists it."""
    if not says_nothing(pair.value):
        return True
    slots = [table.slots[ref] for ref in table.find(pair.name)]
    return any(slot.is_categorical and listed_form(slot.values, pair.value) is not None for slot in slots)


def as_proposed(pairs: Sequence[Pair], table: SlotTable, everything: SlotTable) -> dict[SlotRef, str]:
    """The delta as it would be written with no check at all: names by the nearest guess, values as they are."""
    return {
        next(iter(table.find(p.name) or everything.find(p.name)), None) or unknown_ref(p.name, table): p.value
        for p in pairs
        if states_value(p, table)
    }


def unknown_ref(name: str, table: SlotTable) -> SlotRef:
    """A slot for a name that no schema has: of the service it begins with, else of the first active one."""
    services = list(dict.fromkeys(ref.service for ref in table.slots))
    for service in services:
        if name_key(name).startswith(f"{name_key(service)}-"):
            return SlotRef(service, name[len(service) + 1 :])
    return SlotRef(services[0] if services else "", name)


@dataclass(frozen=True, slots=True)
class _Check:
    """The value checks of one proposal. ``values`` is the state with the proposal laid over it."""

    validator: Validator
    table: SlotTable
    values: Mapping[SlotRef, str]
    known: Mapping[SlotRef, str]
    evidence: Evidence | None

    def value(self, ref: SlotRef, pair: Pair) -> str | Problem | None:
        """The value in the schema's own form, or what is wrong with it; None where there is none after all."""
        rules = self.validator.rules
        slot = self.table.slots.get(ref) or self.validator.catalog.slots.slots.get(ref)
        if slot is None:
            return pair.value
        value, copied = pair.value, False
        if rules.coref:
            resolved = self._copied(ref, slot, pair)
            if isinstance(resolved, Problem):
                return resolved
            copied, value = resolved is not None, resolved if resolved is not None else value
            if not copied and not states_value(pair, self.table):
                return None
        if value == DELETE and self.validator.deletes:
            return value
        if is_dontcare(value) and self.validator.catalog.dontcare:
            return DONTCARE if rules.schema else value
        if not slot.is_categorical and rules.coref and not copied and self._is_kind(ref, slot, value):
            return _problem("coref.kind", ref, self.table, value)
        if rules.schema:
            formed = in_form(slot, value)
            if formed is None or (is_dontcare(value) and not slot.is_categorical):
                return _wrong_form(ref, slot, self.table, value)
            value = formed
        if rules.ground and not copied and not self._traceable(ref, slot, value):
            return _problem("ground.untraceable", ref, self.table, value)
        return value

    def _is_kind(self, ref: SlotRef, slot: Slot, value: str) -> bool:
        """Also where the value is the schema's own description of the slot or its service."""
        validator = self.validator
        if value in (slot.description, validator.catalog.services[ref.service].description):
            return True
        return validator.referents.is_kind(value) and not validator.referents.may_be_kind(slot)

    def _copied(self, ref: SlotRef, slot: Slot, pair: Pair) -> str | Problem | None:
        """The value of the slot that this one is copied from; None where it is no copy."""
        if pair.source and (sources := self._sources(pair.source, ref)):
            given = {fold(self.values[s]): self.values[s] for s in sources if s in self.values}
            same = given.get(fold(pair.value)) if pair.value or len(given) != 1 else next(iter(given.values()))
            if same is not None:
                return same
            return _problem("coref.copy", ref, self.table, pair.value or pair.source, allowed=tuple(given.values()))
        if slot.is_categorical:
            return None
        name = copied_name(pair.value) or pair.value
        sources = self._sources(name, ref)
        if not sources:
            return None
        values = {self.values[s] for s in sources if s in self.values}
        if len(values) == 1 and not self._sources(value := values.pop()):
            return value
        return _problem("coref.copy", ref, self.table, pair.value, allowed=tuple(sorted(values)))

    def _sources(self, name: str, target: SlotRef | None = None) -> list[SlotRef]:
        found = self.table.find(name) or self.validator.catalog.slots.find(name)
        return [ref for ref in found if ref != target] if found else []

    def _traceable(self, ref: SlotRef, slot: Slot, value: str) -> bool:
        if slot.is_categorical or slot.type is not SlotType.TEXT or self.evidence is None:
            return True
        return fold(value) in {fold(v) for v in self.known.values()} or self.evidence.holds(value)


def _problem(
    rule: str, ref: SlotRef, table: SlotTable, value: str, expected: str = "", allowed: tuple[str, ...] = ()
) -> Problem:
    label = table.labels.get(ref) or qualified(ref.service, ref.slot)
    return Problem(rule, label, value, expected, allowed[:FEW], ref)


def _wrong_form(ref: SlotRef, slot: Slot, table: SlotTable, value: str) -> Problem:
    if slot.is_categorical:
        allowed = slot.values if len(slot.values) <= FEW else _near(value, list(slot.values))
        return _problem("schema.categorical", ref, table, value, "a listed value", allowed)
    return _problem("schema.type", ref, table, value, EXPECTED[slot.type])


def _near(name: str, allowed: list[str]) -> tuple[str, ...]:
    """All of ``allowed`` where few, else the nearest, else the first."""
    if len(allowed) <= FEW:
        return tuple(allowed)
    return tuple(get_close_matches(name, allowed, n=5, cutoff=0.5)) or tuple(allowed[:FEW])
