"""Gold out of reach: each rule, once, where it first stands in the annotation."""

from __future__ import annotations

from collections.abc import Mapping

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.methods.tracker.validator import Rules
from dialoom.reach import Unreachable, unreachable
from support.town import TOWN

State = Mapping[str, Mapping[str, tuple[str, ...]]]


def said(*states: State) -> Dialogue:
    """A user turn for each state, by service, with a system turn after each."""
    turns = []
    for state in states:
        turns.append(Turn(Speaker.USER, "…", tuple(Frame(service, values) for service, values in state.items())))
        turns.append(Turn(Speaker.SYSTEM, "…"))
    return Dialogue("d", tuple(turns))


def rules(*states: State, **options: object) -> list[tuple[int, str, str, str]]:
    found = unreachable([said(*states)], TOWN, **options)  # type: ignore[arg-type]
    return [(u.turn, u.slot, u.value, u.rule) for u in found]


def test_all_within_reach() -> None:
    assert rules({"inn": {"name": ("Heron",)}}, {"inn": {"name": ("Heron", "the Heron"), "area": ("North",)}}) == []


def test_one_form_within_reach_is_enough() -> None:
    assert rules({"inn": {"name": ("the inn", "Heron")}, "cab": {"pickup": ("5pm", "17:00")}}) == []


def test_each_rule_is_listed_once_at_its_first_turn() -> None:
    wrong = {
        "inn": {
            "name": ("the inn",),
            "area": ("east",),
            "guests": ("four",),
            "type": ("guesthouse",),
            "wifi": ("none",),
        }
    }
    assert rules(wrong, wrong) == [
        (0, "name", "the inn", "coref.kind"),
        (0, "area", "east", "schema.categorical"),
        (0, "guests", "four", "schema.type"),
        (0, "type", "guesthouse", "value.reformed"),
        (0, "wifi", "none", "value.none"),
    ]


def test_removals_are_out_of_reach_unless_deletes_are_admitted() -> None:
    states = (
        {"inn": {"name": ("Heron",), "area": ("North",)}},
        {"inn": {"name": ("Heron",)}},
        {"inn": {"name": ("Heron",)}},
    )
    assert rules(*states) == [(2, "area", "", "upsert.removed")]
    assert rules(*states, deletes=True) == []


def test_a_value_that_was_removed_and_comes_back_was_held_all_along() -> None:
    states: tuple[State, ...] = ({"inn": {"area": ("North",)}}, {"inn": {}}, {"inn": {"area": ("North",)}})
    assert rules(*states) == [(2, "area", "", "upsert.removed")]


def test_rules_that_are_off_put_nothing_out_of_reach() -> None:
    assert rules({"inn": {"area": ("east",)}}, rules=Rules(schema=False)) == []


def test_unlabelled_turns_and_unknown_slots() -> None:
    plain = Dialogue("p", (Turn(Speaker.USER, "hi"),))
    odd = Dialogue("o", (Turn(Speaker.USER, "hi", (Frame("inn", {"colour": ("red",)}),)),), services=("inn",))
    assert list(unreachable([plain, odd], TOWN)) == [Unreachable("o", 0, "inn", "colour", "red", "schema.unknown_slot")]
