"""The form of a value that a slot asks for: entries of a list, times, numbers, days, dates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date

from dialoom.schema import Slot, SlotType
from dialoom.state import DELETE
from dialoom.text import fold

MAX_VALUE = 200
"""Characters a value may have."""

_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_INTEGER = re.compile(r"[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_BOOLEANS = ("True", "False", "yes", "no")
EXPECTED: Mapping[SlotType, str] = {
    SlotType.TEXT: "text",
    SlotType.TIME: "HH:MM",
    SlotType.INTEGER: "digits",
    SlotType.BOOLEAN: "yes or no",
    SlotType.DAY: "a day of the week in lower case",
    SlotType.DATE: "YYYY-MM-DD",
}
"""What a value of each type must be, as feedback and traces name it."""


def in_form(slot: Slot, value: str) -> str | None:
    """``value`` as the schema writes it, or None where it does not fit the slot."""
    if slot.is_categorical:
        return listed_form(slot.values, value)
    if len(value) > MAX_VALUE or value == DELETE:
        return None
    if slot.type is SlotType.TEXT:
        return value
    folded = fold(value)
    if slot.type is SlotType.TIME:
        return folded if _TIME.fullmatch(folded) else None
    if slot.type is SlotType.INTEGER:
        return folded if _INTEGER.fullmatch(folded) else None
    if slot.type is SlotType.DAY:
        return folded if folded in _DAYS else None
    if slot.type is SlotType.DATE:
        return folded if _DATE.fullmatch(folded) and _is_date(folded) else None
    return listed_form(slot.values or _BOOLEANS, value)


def listed_form(values: Sequence[str], value: str) -> str | None:
    """The entry of ``values`` that equals ``value`` but for case and blanks."""
    if value in values:
        return value
    wanted = fold(value).replace(" ", "")
    return next((v for v in values if fold(v).replace(" ", "") == wanted), None)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
