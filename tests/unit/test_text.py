"""Untrusted text: made safe to show and to store."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.text import fold, is_chinese, printable, storable, storable_tree

any_text = st.text() | st.lists(
    st.sampled_from(["a", "\ud800", "\udc00", "😀", "\0", "\x1b[2J", "\u202e", "\r\n"])
).map("".join)
valid_text = st.text(st.characters(codec="utf-8"))


@given(any_text)
def test_storable_text_is_valid_and_stays_as_it_is(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert storable(stored) == stored


@given(valid_text)
def test_valid_text_is_not_touched(text: str) -> None:
    assert storable(text) == text


def test_surrogates_become_their_escape() -> None:
    assert storable("a\ud800b\0") == "a\\ud800b\0"


@given(any_text, st.none() | st.integers(1, 40))
def test_printable_text_is_one_harmless_line(text: str, limit: int | None) -> None:
    shown = printable(text, limit)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)
    assert not any(
        unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI") for c in shown
    )
    assert limit is None or len(shown) <= limit


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc", "a\\nb c"),
        ("\u202eabc", "\\u202eabc"),
        ("\u061ca\u2028b", "\\u061ca\\u2028b"),
        ("日本語 😀", "日本語 😀"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_cut_is_marked() -> None:
    assert printable("abcdef", 4) == "abc…"
    assert printable("abcd", 4) == "abcd"


leaves = st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.dates() | st.binary(max_size=3)
trees = st.recursive(
    leaves, lambda t: st.lists(t, max_size=3) | st.dictionaries(any_text | st.integers(), t, max_size=3), max_leaves=9
)


@given(trees)
def test_any_tree_can_be_written_once_it_is_storable(tree: Any) -> None:
    written = orjson.dumps(storable_tree(tree))
    assert orjson.loads(written) == orjson.loads(orjson.dumps(storable_tree(orjson.loads(written))))


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | valid_text,
    lambda t: st.lists(t, max_size=3) | st.dictionaries(valid_text, t, max_size=3),
    max_leaves=9,
)


@given(json_trees)
def test_plain_json_is_kept_as_it_is(tree: Any) -> None:
    assert storable_tree(tree) == tree


@pytest.mark.parametrize("levels", [90, 200, 900, 5000])
def test_deep_trees_can_be_written(levels: int) -> None:
    tree: Any = "core"
    for _ in range(levels):
        tree = [tree]
    written = orjson.dumps(storable_tree({"x": tree})).decode()
    assert ("core" in json.dumps(written)) == (levels < 900)


def test_chinese() -> None:
    assert is_chinese("我想订一个房间")
    assert is_chinese("我要一间 hotel room")
    assert not is_chinese("the sign says 出口")
    assert not is_chinese("")


@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_fold() -> None:
    assert fold("  Straße\u00a0 7 ") == "strasse 7"
    assert fold("ＡＢＣ") == "abc"
    assert fold("A  B\n") == "a b"
