"""Domain schemas: services, their intents and slots, slot types and allowed values.

Two file forms are read: the service-definition JSON of SGD and MultiWOZ 2.2 as it is, and dialoom's own YAML, which
adds slot types (see ``docs/schemas.md``). The YAML form has the same field names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import orjson

DONTCARE = "dontcare"
"""The value that says the user has no preference; allowed for every slot where ``Schema.dontcare`` is set."""

NO_INTENT = "NONE"
"""SGD's name for "no active intent"."""


class SlotType(StrEnum):
    """What a value must look like.

    ``time`` is ``HH:MM`` (24 hours), ``integer`` digits, ``boolean`` one of the slot's two values or ``yes``/``no``/
    ``True``/``False``, ``day`` a day of the week in English lower case, ``date`` ``YYYY-MM-DD``, ``text`` anything.
    """

    TEXT = "text"
    TIME = "time"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DAY = "day"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot. ``values`` is closed when ``is_categorical``, else examples only."""

    name: str
    description: str = ""
    is_categorical: bool = False
    values: tuple[str, ...] = ()
    type: SlotType = SlotType.TEXT


@dataclass(frozen=True, slots=True)
class Intent:
    """An intent of a service and the slots it needs (``required_slots``) or may take (``optional_slots``)."""

    name: str
    description: str = ""
    is_transactional: bool = False
    required_slots: tuple[str, ...] = ()
    optional_slots: Mapping[str, str] = field(default_factory=dict)
    result_slots: tuple[str, ...] = ()


@dataclass(frozen=True)
class Service:
    """A service (in MultiWOZ a domain).

    ``kinds`` are words that name the kind of thing the service offers ("hotel", "guest house"): no entity on their own.
    """

    name: str
    description: str = ""
    slots: tuple[Slot, ...] = ()
    intents: tuple[Intent, ...] = ()
    kinds: tuple[str, ...] = ()

    @cached_property
    def slot_by_name(self) -> Mapping[str, Slot]:
        """Slot name to slot."""
        return {s.name: s for s in self.slots}

    @cached_property
    def intent_by_name(self) -> Mapping[str, Intent]:
        """Intent name to intent."""
        return {i.name: i for i in self.intents}


@dataclass(frozen=True)
class Schema:
    """Every service a run may track, by name, in file order.

    ``dontcare`` says whether the data set allows :data:`DONTCARE`; ``source`` is the file it came from.
    """

    name: str
    services: Mapping[str, Service]
    dontcare: bool = True
    source: str = ""

    def subset(self, names: Iterable[str]) -> Schema:
        """The schema of the named services only, in the schema's own order; unknown names are left out."""
        wanted = set(names)
        return replace(self, services={n: s for n, s in self.services.items() if n in wanted})

    @cached_property
    def digest(self) -> str:
        """Hex digest (32 characters) of everything but ``source``."""
        record = [self.name, self.dontcare, [_service_record(s) for s in self.services.values()]]
        return hashlib.blake2b(orjson.dumps(record, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()

    def to_records(self) -> list[dict[str, object]]:
        """The services as plain records, in the SGD field names plus ``type`` and ``kinds``."""
        return [_service_record(s) for s in self.services.values()]


def _service_record(service: Service) -> dict[str, object]:
    return {
        "service_name": service.name,
        "description": service.description,
        "kinds": list(service.kinds),
        "slots": [
            {
                "name": s.name,
                "description": s.description,
                "is_categorical": s.is_categorical,
                "possible_values": list(s.values),
                "type": s.type.value,
            }
            for s in service.slots
        ],
        "intents": [
            {
                "name": i.name,
                "description": i.description,
                "is_transactional": i.is_transactional,
                "required_slots": list(i.required_slots),
                "optional_slots": dict(i.optional_slots),
                "result_slots": list(i.result_slots),
            }
            for i in service.intents
        ],
    }
