"""Bounded answer schemas: every grammar made from one ends, whatever a model prefers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.answer_schema import MAX_ITEMS, MAX_LENGTH, bounded, bounded_json
from dialoom.errors import SchemaError

names = st.sampled_from(["a", "b c", "tag", "ü", 'q"'])
scalars = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"maxLength": st.integers(0, 9), "minLength": st.just(0)}
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-50, 0), "maximum": st.integers(0, 10**12), "multipleOf": st.just(1)},
    ),
    st.sampled_from(
        [
            {},
            {"type": ["string", "null"]},
            {"type": "boolean"},
            {"type": "string", "pattern": "^[a-z ]+$"},
            {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
            {"type": "string", "pattern": "a"},
            {"type": "string", "pattern": "^(am|pm)$"},
            {"type": "string", "pattern": "^x|y$"},
            {"type": "string", "format": "time"},
            {"type": "string", "format": "email"},
            {"enum": ["yes", "no", 3, None, {"k": [1]}]},
            {"const": "only\nthis"},
            {"minLength": 2},
            {"type": "array"},
            {"type": "object"},
        ]
    ),
)


def composite(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    objects = st.dictionaries(names, inner, min_size=1, max_size=3).flatmap(
        lambda p: st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.just(p)},
            optional={"required": st.lists(st.sampled_from(sorted(p)), unique=True)},
        )
    )
    arrays = st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"maxItems": st.integers(1, 2)})
    tuples = st.lists(inner, min_size=1, max_size=2).map(lambda p: {"prefixItems": p})
    maps = inner.map(lambda v: {"type": "object", "additionalProperties": v, "maxProperties": 2})
    choices = st.lists(inner, min_size=1, max_size=3).map(lambda b: {"oneOf": b})
    return st.one_of(objects, arrays, tuples, maps, choices)


schemas = st.recursive(scalars, composite, max_leaves=4)


TOKENS: list[str | bytes] = [bytes([b]) for b in range(256)] + ["\n\n\n\n", "    ", "00000000", "aaaaaaaa", "</s>"]
END = len(TOKENS) - 1


@cache
def compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar", reason="the extras cpu and gpu bring xgrammar")
    info = xgrammar.TokenizerInfo(TOKENS, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info, max_threads=1)


def greedy_answer(schema: str, taste: Sequence[str], limit: int) -> str:
    """What a model writes that likes ``taste`` best and the answer's end least; at most ``limit`` bytes."""
    import xgrammar

    raw = [t if isinstance(t, bytes) else t.encode() for t in TOKENS]
    liked = {t.encode(): i for i, t in enumerate(taste)}
    order = sorted(range(END), key=lambda t: liked.get(raw[t], len(liked) + (raw[t] in b'"]}')))
    grammar = compiler().compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
    matcher = xgrammar.GrammarMatcher(grammar)
    mask = xgrammar.allocate_token_bitmask(1, len(TOKENS))
    text = b""
    while True:
        matcher.fill_next_token_bitmask(mask)
        bits = int.from_bytes(mask.numpy().tobytes(), "little")
        best = next((t for t in order if bits >> t & 1), END)
        assert matcher.accept_token(best)
        if best == END:
            return text.decode(errors="replace")
        text += raw[best]
        assert len(text) <= limit, text[:2000]


def longest(schema: dict[str, Any] | bool) -> int:
    """An upper bound of the characters of an answer: what a grammar may spend on each part."""
    if isinstance(schema, bool):
        return 0
    if "anyOf" in schema:
        return max(longest(s) for s in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return max(len(json.dumps(v)) for v in schema.get("enum", [schema.get("const")])) + 8
    parts: list[int] = [20 + 12, 6 * schema.get("maxLength", MAX_LENGTH) + 2]
    items = schema.get("prefixItems", []) + [schema.get("items", False)] * schema.get("maxItems", 0)
    parts.append(2 + sum(longest(i) + 2 for i in items))
    parts.append(2 + sum(longest(v) + 8 + 6 * len(n) for n, v in schema.get("properties", {}).items()))
    values = schema.get("additionalProperties", False)
    parts.append(2 + schema.get("maxProperties", 0) * (longest(values) + 6 * MAX_LENGTH + 8))
    return max(parts)


TASTES = [
    [" ", "    ", "\n\n\n\n", "\n", "\t"],
    ["00000000", "0", "9"],
    ["aaaaaaaa", "a"],
    ["[", "{", ","],
    ["\\"],
    ["-", "."],
]


@given(schemas, st.sampled_from(TASTES))
def test_no_answer_is_endless(schema: dict[str, Any], taste: list[str]) -> None:
    limits = bounded(schema)
    text = greedy_answer(json.dumps(limits), taste, longest(limits))
    json.loads(text, strict=False)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "number"}, {"type": "array"}])
def test_without_bounds_an_answer_is_endless(schema: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        greedy_answer(json.dumps(schema), ["aaaaaaaa", "00000000", "[", ","], limit=50_000)


@given(schemas)
def test_bounding_twice_changes_nothing_but_free_names(schema: dict[str, Any]) -> None:
    once = bounded(schema)
    assert bounded(once) == once


def test_given_limits_are_kept_and_missing_ones_set() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 500, "description": "A name."},
            "note": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "null"}, "minItems": 20, "uniqueItems": True},
            "big": {"type": "integer", "minimum": 10**15},
            "open": {"type": "number", "exclusiveMinimum": 0},
        },
        "required": ["name", "absent"],
        "$defs": {"unused": {"allOf": []}},
    }
    assert bounded(schema) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 500, "description": "A name."},
            "note": {"type": "string", "maxLength": MAX_LENGTH},
            "tags": {"type": "array", "items": {"type": "null"}, "minItems": 20, "maxItems": 20},
            "big": {"type": "integer", "minimum": 10**15, "maximum": 10**15 + 999_999_999},
            "open": {"type": "number", "exclusiveMinimum": 0, "maximum": 999_999_999},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert bounded({"type": "array", "items": {"type": "boolean"}})["maxItems"] == MAX_ITEMS


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("^[0-9]{2}:[0-9]{2}$", True),
        ("^(am|pm)$", True),
        (r"^a\+b$", True),
        ("^a?b{2,4}$", True),
        ("^a*$", False),
        (r"^\\+$", False),
        ("^b{2,}$", False),
        ("abc", False),
        ("^a|b$", False),
        (r"^a\$", False),
    ],
)
def test_patterns_are_kept_where_they_end(pattern: str, kept: bool) -> None:
    out = bounded({"type": "string", "pattern": pattern})
    assert out == {"type": "string"} | ({"pattern": pattern} if kept else {"maxLength": MAX_LENGTH})


def test_references_are_resolved() -> None:
    schema = {
        "$defs": {
            "slot/name": {"enum": ["a", "b"]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/slot~1name"}},
        },
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/list", "description": "All."}},
    }
    assert bounded(schema)["properties"]["first"] == {
        "type": "array",
        "items": {"enum": ["a", "b"]},
        "maxItems": MAX_ITEMS,
        "description": "All.",
    }


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "array", "items": {"$ref": "#"}}, "#/items/items"),
        ({"properties": {"x": {"allOf": [{}]}}}, "#/properties/x"),
        ({"anyOf": [{"type": "string"}, {"type": "text"}]}, "#/anyOf/1/type"),
        ({"properties": {"x": {"type": "string"}}, "additionalProperties": True}, "#"),
        ({"items": {"$ref": "#/$defs/none"}}, "#/items"),
        ({"items": {"$ref": "http://elsewhere"}}, "#/items"),
        ({"items": 3}, "#/items"),
        ({"properties": {"x": False}}, "#/properties/x"),
    ],
)
def test_what_cannot_be_bounded_is_refused_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(SchemaError) as caught:
        bounded(schema)
    assert caught.value.where == where


def test_json_form_is_compact_and_remembered() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    text = bounded_json(schema)
    assert json.loads(text) == bounded(schema)
    assert " " not in text
    assert bounded_json(dict(schema)) is text
