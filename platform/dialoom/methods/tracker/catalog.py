"""The services a dialogue may be about, under the names a model sees, qualified only where needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dialoom.schema import Intent, Schema, Service, Slot
from dialoom.state import SlotRef
from dialoom.text import fold


class IntentRef(NamedTuple):
    """An intent of a service."""

    service: str
    intent: str


def qualified(service: str, name: str) -> str:
    """``service-name``; a name that begins with its service already is left as it is."""
    return name if name.startswith(f"{service}-") else f"{service}-{name}"


def bare(service: str, name: str) -> str:
    """``name`` without its service in front, which some schemas put there (``hotel-area``)."""
    return name.removeprefix(f"{service}-")


def name_key(name: str) -> str:
    """A slot or intent name for comparison: folded, with every ``.``, ``:``, ``/``, blank and ``-`` alike."""
    return fold(name).translate(_MARKS)


_MARKS = str.maketrans({".": "-", ":": "-", "/": "-", " ": "-", "_": "-"})


@dataclass(frozen=True)
class SlotTable:
    """The slots that may be set in one step, each under its label."""

    slots: Mapping[SlotRef, Slot]
    labels: Mapping[SlotRef, str]

    @classmethod
    def of(cls, services: Iterable[Service], only: Mapping[str, frozenset[str]] | None = None) -> SlotTable:
        """All slots of ``services``, or those that ``only`` names for a service."""
        slots = {
            SlotRef(service.name, slot.name): slot
            for service in services
            for slot in service.slots
            if only is None or slot.name in only[service.name]
        }
        counts: dict[str, int] = {}
        for ref in slots:
            key = name_key(ref.slot)
            counts[key] = counts.get(key, 0) + 1
        labels = {
            ref: ref.slot if counts[name_key(ref.slot)] == 1 else qualified(ref.service, ref.slot) for ref in slots
        }
        return cls(slots, labels)

    @cached_property
    def refs(self) -> Mapping[str, tuple[SlotRef, ...]]:
        """Name key to the slots it may mean: its own name, the bare one, and the one with its service."""
        found: dict[str, list[SlotRef]] = {}
        for ref in self.slots:
            names = (ref.slot, bare(ref.service, ref.slot), qualified(ref.service, ref.slot))
            for key in dict.fromkeys(map(name_key, names)):
                found.setdefault(key, []).append(ref)
        return {key: tuple(refs) for key, refs in found.items()}

    def find(self, name: str) -> tuple[SlotRef, ...]:
        """The slots that ``name`` may mean; none where it is unknown."""
        return self.refs.get(name_key(name), ())


class Catalog:
    """The candidate services of a dialogue, with all names worked out; shared by every dialogue with the same ones."""

    def __init__(self, schema: Schema) -> None:
        self.services = schema.services
        self.dontcare = schema.dontcare
        self.slots = SlotTable.of(schema.services.values())
        self.intents: dict[IntentRef, Intent] = {
            IntentRef(s.name, i.name): i for s in schema.services.values() for i in s.intents
        }
        self.intent_labels = _intent_labels(self.intents)
        self._refs: dict[str, tuple[IntentRef, ...]] = {}
        for ref in self.intents:
            for key in {name_key(ref.intent), name_key(qualified(ref.service, ref.intent))}:
                self._refs[key] = (*self._refs.get(key, ()), ref)

    def find_intent(self, name: str) -> tuple[IntentRef, ...]:
        """The intents that ``name`` may mean; none where it is unknown."""
        return self._refs.get(name_key(name), ())

    def services_of(self, intents: Iterable[IntentRef]) -> tuple[str, ...]:
        """The services of ``intents``, each once, in the schema's order."""
        wanted = {ref.service for ref in intents}
        return tuple(name for name in self.services if name in wanted)

    def slots_of_services(self, names: Sequence[str]) -> SlotTable:
        """All slots of the named services."""
        return SlotTable.of([self.services[n] for n in names])

    def slots_of_intents(self, intents: Iterable[IntentRef]) -> SlotTable:
        """The slots that ``intents`` require or take; all of a service whose intents name none."""
        named: dict[str, set[str]] = {}
        for ref in intents:
            intent = self.intents[ref]
            named.setdefault(ref.service, set()).update(intent.required_slots, intent.optional_slots)
        services = [self.services[n] for n in self.services if n in named]
        only = {s.name: frozenset(named[s.name] or s.slot_by_name) for s in services}
        return SlotTable.of(services, only)


def _intent_labels(intents: Iterable[IntentRef]) -> dict[IntentRef, str]:
    refs = list(intents)
    counts: dict[str, int] = {}
    for ref in refs:
        counts[name_key(ref.intent)] = counts.get(name_key(ref.intent), 0) + 1
    return {
        ref: ref.intent if counts[name_key(ref.intent)] == 1 else qualified(ref.service, ref.intent) for ref in refs
    }
