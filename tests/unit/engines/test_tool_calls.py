"""Hermes-style tool calls in a model's text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.engines._tool_calls import parse_tool_calls


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ("no call", [], "no call"),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [("f", '{"a":1}')], ""),
        ('I look.\n<tool_call>{"name": "f"}</tool_call>', [("f", "{}")], "I look."),
        ('<tool_call>{"name": "f", "arguments": "{}"}', [("f", "{}")], ""),
        (
            '<tool_call>{"name": "f"}</tool_call> and <tool_call>{"name": "g"}</tool_call>',
            [("f", "{}"), ("g", "{}")],
            "and",
        ),
        ("<tool_call>{oops</tool_call>", [], "<tool_call>{oops</tool_call>"),
        ("<tool_call>[1]</tool_call>", [], "<tool_call>[1]</tool_call>"),
        ('<tool_call>{"name": 3}</tool_call>', [], '<tool_call>{"name": 3}</tool_call>'),
        ('<tool_call>{"arguments": {}}</tool_call>', [], '<tool_call>{"arguments": {}}</tool_call>'),
    ],
)
def test_calls(text: str, calls: list[tuple[str, str]], rest: str) -> None:
    found, left = parse_tool_calls(text)
    assert [(c["name"], c["arguments"]) for c in found] == calls
    assert left == rest
    assert len({c["id"] for c in found}) == len(found)


words = st.text(st.characters(exclude_characters="<>", codec="utf-8"))
arguments = st.dictionaries(words, st.one_of(words, st.integers(-5, 5), st.none(), st.lists(words, max_size=2)))


@given(st.lists(st.tuples(words, arguments), min_size=1, max_size=3))
def test_written_calls_come_back(calls: list[tuple[str, dict[str, Any]]]) -> None:
    text = "\n".join(f"<tool_call>\n{json.dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)
    found, rest = parse_tool_calls(text)
    assert [(c["name"], json.loads(c["arguments"])) for c in found] == calls
    assert rest == ""


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    calls, rest = parse_tool_calls(text)
    assert calls or rest == text
