"""Services from what ``Schema.to_records`` gave, as ``run.json`` keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dialoom.errors import DataError
from dialoom.schema import Intent, Service, Slot, SlotType


def services_from_records(records: Iterable[Mapping[str, Any]], where: str = "") -> dict[str, Service]:
    """Services by name, with what scores need: names, slots, categorical or not, intents.

    Raises DataError where a record has no name, or a slot does not say its name.
    """
    return {service.name: service for service in (_service(r, where) for r in records)}


def _service(record: Any, where: str) -> Service:
    try:
        return Service(
            name=record["service_name"],
            description=record.get("description", ""),
            slots=tuple(
                Slot(
                    name=slot["name"],
                    description=slot.get("description", ""),
                    is_categorical=bool(slot.get("is_categorical")),
                    values=tuple(slot.get("possible_values") or ()),
                    type=SlotType(slot.get("type", "text")),
                )
                for slot in record.get("slots", ())
            ),
            intents=tuple(Intent(name=i["name"]) for i in record.get("intents", ())),
            kinds=tuple(record.get("kinds", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "A service has service_name, and slots with name and is_categorical."
        raise DataError(f"not a service definition ({error!r})", where=where, hint=hint) from error
