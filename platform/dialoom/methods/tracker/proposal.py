"""The arguments of the tracker's tools, read from whatever a model gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dialoom.text import fold

NO_INTENTS = frozenset(["none", "no intent", "无", "没有"])
"""What a model answers where no intent of the schema is meant, folded."""


class Pair(NamedTuple):
    """One proposed value: the slot's name as given, the value, and the slot it is said to be copied from."""

    name: str
    value: str
    source: str = ""


class Malformed(NamedTuple):
    """Arguments of the wrong form. ``expected`` says which form is right."""

    expected: str


def read_intents(arguments: Mapping[str, Any]) -> list[str] | Malformed:
    """The intent names of ``{"intents": [...]}``, a single name taken as a list; empty for "none"."""
    given = arguments.get("intents", arguments.get("intent"))
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        return Malformed('{"intents": ["..."]}')
    return [n.strip() for n in names if n.strip() and fold(n) not in NO_INTENTS]


def read_query(arguments: Mapping[str, Any]) -> str | Malformed:
    """The text of ``{"query": "..."}``."""
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        return Malformed('{"query": "..."}')
    return query.strip()


def read_slots(arguments: Mapping[str, Any]) -> list[Pair] | Malformed:
    """The pairs of ``{"slots": [{"slot", "value", "from"?}]}``, of ``{"slots": {slot: value}}`` or of a bare map."""
    given = arguments.get("slots", arguments)
    if isinstance(given, Mapping):
        items: list[Any] = [{"slot": name, "value": value} for name, value in given.items()]
    elif isinstance(given, list):
        items = given
    else:
        return _SLOTS
    pairs = []
    for item in items:
        pair = _pair(item)
        if pair is None:
            return _SLOTS
        pairs.append(pair)
    return pairs


def usable_slots(arguments: Mapping[str, Any]) -> list[Pair]:
    """The pairs that can be read, whatever else is wrong."""
    read = read_slots(arguments)
    if not isinstance(read, Malformed):
        return read
    given = arguments.get("slots")
    pairs = [_pair(item) for item in given] if isinstance(given, list) else []
    return [pair for pair in pairs if pair is not None]


_SLOTS = Malformed('{"slots": [{"slot": "...", "value": "..."}]}')


def _pair(item: Any) -> Pair | None:
    if not isinstance(item, Mapping) or not isinstance(name := item.get("slot"), str):
        return None
    value, source = _text(item.get("value")), _text(item.get("from"))
    return None if value is None or source is None else Pair(name.strip(), value, source)


def _text(value: Any) -> str | None:
    """A scalar as text: null is no text, a list of one is its item; None for anything else."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list):
        return _text(value[0])
    return str(value) if isinstance(value, (bool, int, float)) else None
