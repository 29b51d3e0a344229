"""From raw records to dialogues: parsing, typed access to fields, and a bad record as data, never as an exception."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput, DataError
from dialoom.readers._raw import Fault, Place, Raw
from dialoom.readers._split_list import EVERYTHING, Split
from dialoom.text import printable, storable

MAX_DEPTH = 100
"""Levels of lists and objects a record's extra fields may have; deeper ones cannot be stored."""

MAX_ID_LENGTH = 1000

_TYPES = ((bool, "true or false"), (str, "a text"), (int, "a number"), (float, "a number"), (list, "a list"))


def by_byte(place: Place) -> str:
    """The name of a record without an id: ``<file>#<byte>``."""
    return f"{place.path.name}#{place.byte}"


def dialogues(
    items: Iterable[Raw | Fault],
    convert: Callable[[Any, Raw], Dialogue],
    id_fields: tuple[str, ...] = (),
    nameless: Callable[[Place], str] = by_byte,
    split: Split = EVERYTHING,
) -> Iterator[Dialogue | BadInput]:
    """Each item as a dialogue, or as a bad input that says why not.

    ``convert`` takes the parsed record and raises DataError. ``id_fields`` name where a record has its id (a key goes
    before them); ``nameless`` names a bad input whose record has none. What ``split`` does not take is left out,
    parsed no further than its id; a fault without an id is not.
    """
    for item in items:
        record = None
        try:
            if isinstance(item, Fault):
                raise DataError(item.what, where=str(item.place), hint=item.hint)
            if item.key and not split.takes(item.key):
                continue
            record = parse(item)
            own_id = item.key or _own_id(record, id_fields)
            if own_id and not split.takes(own_id):
                continue
            dialogue = convert(record, item)
            if dialogue.extra and _deeper(dialogue.extra, MAX_DEPTH):
                raise DataError(f"fields are nested deeper than {MAX_DEPTH} levels")
        except DataError as error:
            found = item.key or _own_id(record, id_fields) or _seen_id(item.data, id_fields)
            if not found or split.takes(found):
                yield _bad(item, error, found or nameless(item.place), parsed=record is not None)
            continue
        if own_id or split.takes(dialogue.dialogue_id):
            yield dialogue


def _bad(item: Raw | Fault, error: DataError, dialogue_id: str, *, parsed: bool) -> BadInput:
    return BadInput(
        dialogue_id=storable(dialogue_id)[:MAX_ID_LENGTH],
        where=printable(f"{item.place} {error.where}".strip(), 300) if parsed else error.where,
        what=error.what,
        hint=error.hint,
        content_hash=hashlib.blake2b(item.data, digest_size=16).hexdigest(),
    )


def parse(item: Raw) -> Any:
    """The JSON value of ``item``.

    More is let pass than by the letter of JSON, so that no dialogue is lost: lone surrogates, raw control characters,
    NaN. Raises DataError with the line and byte of what cannot be read.
    """
    try:
        return orjson.loads(item.data)
    except orjson.JSONDecodeError:
        pass
    try:
        text = item.data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        hint = "Save the file as UTF-8, for example: iconv -f GB18030 -t UTF-8."
        raise DataError("the text is not UTF-8", where=str(_inside(item, error.start)), hint=hint) from error
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode("utf-8", "surrogatepass"))
        raise DataError(f"broken JSON: {error.msg}", where=str(_inside(item, at))) from error
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"the record cannot be read: {what}", where=str(item.place)) from error


def _inside(item: Raw, byte: int) -> Place:
    return Place(item.place.path, item.place.line + item.data.count(b"\n", 0, byte), item.place.byte + byte)


def _deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    if depth == 0:
        return True
    return any(_deeper(v, depth - 1) for v in (value.values() if isinstance(value, dict) else value))


def _own_id(record: Any, id_fields: tuple[str, ...]) -> str:
    if isinstance(record, dict):
        for name in id_fields:
            value = record.get(name)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
                return str(value)
    return ""


def _seen_id(data: bytes, id_fields: tuple[str, ...]) -> str:
    """The id in a record that cannot be parsed, where it can be made out."""
    for name in id_fields:
        match = re.search(b'"' + name.encode() + rb'"\s*:\s*"\s*([^"\\\s][^"\\\n]*)"', data)
        if match:
            return match[1].decode("utf-8", "backslashreplace")
    return ""


def type_name(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "an object")


def an_object(value: Any, what: str, where: str = "") -> Mapping[str, Any]:
    """``value`` if it is a JSON object; else DataError about ``what``."""
    if not isinstance(value, dict):
        raise DataError(f"{what} must be an object, but is {type_name(value)}", where=where)
    return value


def a_list(value: Any, what: str, where: str = "") -> list[Any]:
    """``value`` if it is a JSON list; else DataError about ``what``."""
    if not isinstance(value, list):
        raise DataError(f"{what} must be a list, but is {type_name(value)}", where=where)
    return value


def a_text(value: Any, what: str, where: str = "") -> str:
    """``value`` if it is a JSON string; else DataError about ``what``."""
    if not isinstance(value, str):
        raise DataError(f"{what} must be a text, but is {type_name(value)}", where=where)
    return value


def texts(value: Any, what: str, where: str = "") -> tuple[str, ...]:
    """``value`` as a tuple if it is a list of strings; else DataError about ``what``."""
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        found = type_name(value)
        if isinstance(value, list):
            found = f"a list with {next(type_name(v) for v in value if not isinstance(v, str))}"
        raise DataError(f"{what} must be a list of texts, but is {found}", where=where)
    return tuple(value)


def member(record: Mapping[str, Any], name: str, where: str = "") -> Any:
    """The field ``name``; DataError with the fields there are where it is missing."""
    try:
        return record[name]
    except KeyError:
        there = ", ".join(list(record)[:12]) or "none"
        raise DataError(f"field '{name}' is missing", where=where, hint=f"Fields there: {there}.") from None


def an_id(value: Any, what: str) -> str:
    """A dialogue id: a text that is not empty, or a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = storable(a_text(value, what))
    if not text.strip() or len(text) > MAX_ID_LENGTH:
        raise DataError(f"{what} must have 1 to {MAX_ID_LENGTH} characters, but has {len(text.strip())}")
    return text
