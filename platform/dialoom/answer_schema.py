"""Answer schemas that cannot be filled without end.

A grammar made from a JSON Schema admits strings, numbers and lists of any length, and a small model will produce them
up to the token limit. :func:`bounded` gives every part of a schema a limit. What a grammar cannot enforce is left out,
and the parser of the answer checks it: ``format``, ``uniqueItems``, ``multipleOf``, ``contains``, and a ``pattern``
that has no anchors or a repetition without an end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from dialoom.errors import SchemaError

MAX_LENGTH = 80
"""Characters of a string whose schema gives no ``maxLength``."""
MAX_ITEMS = 16
"""Items of a list, and entries of a map, whose schema gives no limit."""
MAX_NUMBER = 999_999_999
"""Limit of a number on either side of zero, or beyond the one bound its schema gives."""

_ANNOTATIONS = ("title", "description")
_UNSUPPORTED = (
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
)
_TYPE_BY_KEYWORD = {
    "properties": "object",
    "additionalProperties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "maxItems": "array",
    "pattern": "string",
    "maxLength": "string",
    "minLength": "string",
    "minimum": "number",
    "maximum": "number",
}
_LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_SCALARS = ("string", "number", "boolean", "null")
_ENDLESS = re.compile(r"(?<!\\)(?:\\\\)*(?:[*+]|\{\d+,\})")
_WHOLE = re.compile(r"\^(?:[^|]*|\([^()]*\))(?<!\\)\$", re.DOTALL)


def bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``schema`` in which every string, number, list and object is finite, with references resolved.

    An object admits the properties it lists and no others; an object without any is a map of at most ``maxProperties``
    entries. A value of no stated type becomes a string, number, boolean or null.

    Raises SchemaError, with the place as a JSON pointer, for what cannot be bounded: recursion, and keywords that
    combine schemas (``allOf``, ``not``, ``if``, ``patternProperties``).
    """
    return _bounded(schema, schema, "#", ())


def bounded_json(schema: Mapping[str, Any]) -> str:
    """:func:`bounded` as compact JSON; the same schema is worked out once."""
    return _bounded_json(orjson.dumps(schema))


@lru_cache(maxsize=4096)
def _bounded_json(schema: bytes) -> str:
    return orjson.dumps(bounded(orjson.loads(schema))).decode()


def _bounded(schema: Any, root: Mapping[str, Any], at: str, refs: tuple[str, ...]) -> dict[str, Any]:
    if schema is True or schema == {}:
        schema = {"type": list(_SCALARS)}
    if not isinstance(schema, Mapping):
        raise SchemaError("expected a schema object", where=at)
    if "$ref" in schema:
        return _resolved(schema, root, at, refs)
    for keyword in _UNSUPPORTED:
        if keyword in schema:
            raise SchemaError(f"'{keyword}' cannot be bounded", where=at, hint="Write the schema out with 'anyOf'.")
    notes = {k: schema[k] for k in _ANNOTATIONS if k in schema}
    if "const" in schema or "enum" in schema:
        return {k: schema[k] for k in ("type", "const", "enum") if k in schema} | notes
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branches = [_bounded(s, root, f"{at}/{keyword}/{i}", refs) for i, s in enumerate(schema[keyword])]
            return {"anyOf": branches} | notes
    types = _types(schema, at)
    out: dict[str, Any] = {"type": types[0] if len(types) == 1 else list(types)}
    if "string" in types:
        out |= _string(schema)
    if "integer" in types or "number" in types:
        out |= _number(schema)
    if "array" in types:
        out |= _array(schema, root, at, refs)
    if "object" in types:
        out |= _object(schema, root, at, refs)
    return out | notes


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any], at: str, refs: tuple[str, ...]) -> dict[str, Any]:
    ref = schema["$ref"]
    if ref in refs:
        raise SchemaError(f"'{ref}' refers to itself", where=at, hint="Write the wanted depth out.")
    target: Any = root
    try:
        if not ref.startswith("#"):
            raise KeyError(ref)
        for part in ref[1:].split("/")[1:]:
            target = target[part.replace("~1", "/").replace("~0", "~")]
    except (KeyError, TypeError) as error:
        raise SchemaError(f"'{ref}' is not in the schema", where=at) from error
    notes = {k: schema[k] for k in _ANNOTATIONS if k in schema}
    return _bounded(target, root, at, (*refs, ref)) | notes


def _types(schema: Mapping[str, Any], at: str) -> tuple[str, ...]:
    given = schema.get("type")
    if given is None:
        inferred = [t for keyword, t in _TYPE_BY_KEYWORD.items() if keyword in schema]
        return (inferred[0],) if inferred else _SCALARS
    types = (given,) if isinstance(given, str) else tuple(given)
    unknown = set(types) - {*_SCALARS, "integer", "array", "object"}
    if unknown or not types:
        raise SchemaError(f"unknown type {sorted(map(str, unknown))}", where=f"{at}/type")
    return types


def _string(schema: Mapping[str, Any]) -> dict[str, Any]:
    pattern = schema.get("pattern")
    if pattern is not None and _WHOLE.fullmatch(pattern) and not _ENDLESS.search(pattern):
        return {"pattern": pattern}
    shortest = schema.get("minLength", 0)
    lengths = {"maxLength": schema.get("maxLength", max(MAX_LENGTH, shortest))}
    return {"minLength": shortest} | lengths if shortest else lengths


def _number(schema: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        k: schema[k]
        for k in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if schema.get(k) is not None
    }
    lowest = max(limits.get("minimum", -MAX_NUMBER), limits.get("exclusiveMinimum", -MAX_NUMBER))
    highest = min(limits.get("maximum", MAX_NUMBER), limits.get("exclusiveMaximum", MAX_NUMBER))
    if "minimum" not in limits and "exclusiveMinimum" not in limits:
        limits["minimum"] = min(-MAX_NUMBER, highest - MAX_NUMBER)
    if "maximum" not in limits and "exclusiveMaximum" not in limits:
        limits["maximum"] = max(MAX_NUMBER, lowest + MAX_NUMBER)
    return limits


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], at: str, refs: tuple[str, ...]) -> dict[str, Any]:
    fewest = schema.get("minItems", 0)
    out: dict[str, Any] = {"minItems": fewest} if fewest else {}
    prefix = schema.get("prefixItems", [])
    if prefix:
        out["prefixItems"] = [_bounded(s, root, f"{at}/prefixItems/{i}", refs) for i, s in enumerate(prefix)]
    rest = schema.get("items", not prefix)
    if rest is False:
        return out | {"items": False, "maxItems": len(prefix)}
    out["items"] = _bounded(rest, root, f"{at}/items", refs)
    out["maxItems"] = schema.get("maxItems", max(MAX_ITEMS, fewest, len(prefix)))
    return out


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], at: str, refs: tuple[str, ...]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", not properties)
    if properties and others is not False:
        hint = "List every property, or none."
        raise SchemaError("an object with both listed and free properties cannot be bounded", where=at, hint=hint)
    if others is not False:
        fewest = schema.get("minProperties", 0)
        return {
            "additionalProperties": _bounded(others, root, f"{at}/additionalProperties", refs),
            "propertyNames": {"pattern": f'^[^"\\\\\\x00-\\x1f]{{1,{MAX_LENGTH}}}$'},
            "maxProperties": schema.get("maxProperties", max(MAX_ITEMS, fewest)),
        } | ({"minProperties": fewest} if fewest else {})
    out: dict[str, Any] = {
        "properties": {n: _bounded(s, root, f"{at}/properties/{n}", refs) for n, s in properties.items()},
        "additionalProperties": False,
    }
    required = [n for n in schema.get("required", ()) if n in properties]
    return out | {"required": required} if required else out
