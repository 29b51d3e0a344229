"""Where a value comes from: its place in the dialogue, and whether it was said at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Speaker
from dialoom.method import Support
from dialoom.methods.tracker.history import History
from dialoom.state import SlotRef
from support.town import TOWN

REF = SlotRef("inn", "name")


def history(*texts: str) -> History:
    made = History(TOWN.services)
    for number, text in enumerate(texts):
        made.add(number, Speaker.SYSTEM if number % 2 else Speaker.USER, text)
    return made


@pytest.mark.parametrize(
    ("texts", "value", "place"),
    [
        (("A room at the HERON.", "Yes.", "ok"), "the heron", (0, 10, 19)),
        (("Heron", "Heron or Ram?", "the Heron"), "Heron", (2, 4, 9)),
        (("at 17:30 for 7", "ok", "7 people"), "7", (2, 0, 1)),
        (("at 17:30", "ok"), "7", None),
        (("at 17:30", "ok"), "17", None),
        (("north, please",), "north", (0, 0, 5)),
        (("the northern part",), "north", None),
        (("north northern",), "north", (0, 0, 5)),
        (("我想去西湖边",), "西湖", (0, 3, 5)),
        (("İstanbul Heron",), "heron", (0, 9, 14)),
        (("nothing",), "", None),
        (("nothing",), "dontcare", None),
    ],
)
def test_support_is_the_last_place_where_a_value_was_said(
    texts: tuple[str, ...], value: str, place: tuple[int, int, int] | None
) -> None:
    found = history(*texts).support({REF: value})
    assert found == ([Support(REF, *place)] if place else [])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("the blue mussel", True),
        ("Blue-Mussel", True),
        ("blue  mussel", True),
        ("blue", True),
        ("blu", False),
        ("mussel blue", False),
        ("西湖", True),
        ("东湖", False),
    ],
)
def test_holds_looks_for_whole_words_but_for_case_and_punctuation(value: str, said: bool) -> None:
    assert history("At the “Blue Mussel”, yes?", "好的，西湖边。").holds(value) is said


def test_holds_sees_turns_added_later() -> None:
    made = history("hello")
    assert not made.holds("heron")
    made.add(1, Speaker.SYSTEM, "The Heron.")
    assert made.holds("heron")


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_a_place_always_holds_the_value(texts: list[str], value: str) -> None:
    for support in history(*texts).support({REF: value}):
        assert texts[support.turn][support.start : support.end].lower() == value.lower()
