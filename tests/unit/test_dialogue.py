"""Dialogues as JSON and their content hash."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn

texts = st.text(st.characters(codec="utf-8"), max_size=8)
broken_texts = st.lists(st.sampled_from(["a", "\ud800", "\0", "😀"]), max_size=4).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda t: st.lists(t, max_size=2) | st.dictionaries(texts, t, max_size=2),
    max_leaves=4,
)


def dialogues(text: st.SearchStrategy[str] = texts) -> st.SearchStrategy[Dialogue]:
    names = st.lists(text, max_size=2).map(tuple)
    frames = st.builds(Frame, text, st.dictionaries(text, names, max_size=2), st.none() | text, st.none() | names)
    turns = st.builds(Turn, st.sampled_from(Speaker), text, st.none() | st.lists(frames, max_size=2).map(tuple))
    return st.builds(
        Dialogue,
        dialogue_id=text,
        turns=st.lists(turns, max_size=3).map(tuple),
        services=names,
        language=text,
        knowledge=st.none() | text,
        extra=st.dictionaries(text, json_values, max_size=2),
        source=text,
    )


@given(dialogues())
def test_json_round_trip(dialogue: Dialogue) -> None:
    again = Dialogue.from_json(dialogue.to_json())
    assert again == dialogue
    assert again.content_hash() == dialogue.content_hash()


@given(dialogues(broken_texts))
def test_broken_text_is_escaped_once_and_then_stays(dialogue: Dialogue) -> None:
    again = Dialogue.from_json(dialogue.to_json())
    assert Dialogue.from_json(again.to_json()) == again
    assert again.content_hash() == dialogue.content_hash()


DIALOGUE = Dialogue(
    dialogue_id="d",
    turns=(Turn(Speaker.USER, "hi", (Frame("s", {"a": ("x", "y")}, "i", ("b",)),)), Turn(Speaker.SYSTEM, "hello")),
    services=("s",),
    language="en",
    knowledge="k",
    extra={"n": 1},
    source="file:1",
)


def changed(**fields: Any) -> str:
    return dataclasses.replace(DIALOGUE, **fields).content_hash()


def test_the_hash_covers_everything_but_the_source() -> None:
    assert changed(source="other:7") == DIALOGUE.content_hash()
    user, system = DIALOGUE.turns
    assert user.frames is not None
    frame = user.frames[0]
    variants = [
        changed(dialogue_id="e"),
        changed(turns=(user,)),
        changed(turns=(system, user)),
        changed(turns=(dataclasses.replace(user, text="ho"), system)),
        changed(turns=(dataclasses.replace(user, speaker=Speaker.SYSTEM), system)),
        changed(turns=(dataclasses.replace(user, frames=None), system)),
        changed(turns=(dataclasses.replace(user, frames=()), system)),
        *(
            changed(turns=(dataclasses.replace(user, frames=(other,)), system))
            for other in (
                dataclasses.replace(frame, service="t"),
                dataclasses.replace(frame, slot_values={"a": ("y", "x")}),
                dataclasses.replace(frame, active_intent=None),
                dataclasses.replace(frame, requested_slots=()),
            )
        ),
        changed(services=()),
        changed(language=""),
        changed(knowledge=None),
        changed(extra={"n": 2}),
    ]
    assert len({DIALOGUE.content_hash(), *variants}) == len(variants) + 1


def test_the_order_of_extra_fields_does_not_matter() -> None:
    assert changed(extra={"a": 1, "b": 2}) == changed(extra={"b": 2, "a": 1})


@pytest.mark.parametrize("levels", [10, 300, 1000, 20_000])
def test_deeply_nested_fields_are_no_trouble(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    dialogue = dataclasses.replace(DIALOGUE, extra={"deep": value})
    assert Dialogue.from_json(dialogue.to_json()).turns == DIALOGUE.turns
    assert len(dialogue.content_hash()) == 32


@pytest.mark.parametrize("value", [2**70, -(2**70), float("nan"), float("inf"), b"bytes", {1: 2}, {"a", "b"}])
def test_fields_that_json_cannot_hold(value: Any) -> None:
    dialogue = dataclasses.replace(DIALOGUE, extra={"odd": value})
    assert "odd" in orjson.loads(dialogue.to_json())["extra"]


def test_the_language_is_the_records_or_found_in_the_text() -> None:
    assert DIALOGUE.lang == "en"
    assert dataclasses.replace(DIALOGUE, language="").lang == "en"
    assert dataclasses.replace(DIALOGUE, language="", turns=(Turn(Speaker.USER, "你好，我想订房"),)).lang == "zh"
