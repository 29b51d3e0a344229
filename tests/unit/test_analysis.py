"""Why states are wrong, since when, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dialoom.analysis import Cause, Episode, ErrorAnalysis, ErrorKind, analyse_run
from dialoom.schema import Schema, Service, Slot, SlotType
from dialoom.state import SlotRef
from support.traces import slot_values, turn_rows, whole_state, write_run

NAME, AREA, DAY = ("hotel", "hotel-name"), ("hotel", "hotel-area"), ("hotel", "hotel-bookday")
TO, TIME, FOOD = ("taxi", "taxi-destination"), ("taxi", "taxi-leaveat"), ("restaurant", "restaurant-name")
SCHEMA = Schema(
    "mwz",
    {
        "hotel": Service(
            "hotel",
            slots=(
                Slot("hotel-name"),
                Slot("hotel-area", is_categorical=True, values=("north", "south")),
                Slot("hotel-bookday", type=SlotType.DAY),
            ),
            kinds=("guest house",),
        ),
        "taxi": Service("taxi", slots=(Slot("taxi-destination"), Slot("taxi-leaveat", type=SlotType.TIME))),
        "restaurant": Service("restaurant", slots=(Slot("restaurant-name"),)),
    },
)


def analysis(path: Path, *turns: tuple[str, dict[Any, str], dict[Any, str]]) -> ErrorAnalysis:
    rows = [{"user_text": text, "gold": whole_state(g), "state": slot_values(p)} for text, g, p in turns]
    (found,) = analyse_run(write_run(path / "run", turn_rows("d", rows), schema=SCHEMA))
    return found


def only(found: ErrorAnalysis) -> Episode:
    (episode,) = found.episodes
    return episode


@pytest.mark.parametrize(
    ("text", "gold", "pred", "cause"),
    [
        ("acorn please", {NAME: "acorn"}, {FOOD: "acorn", NAME: "acorn"}, Cause.WRONG_SERVICE),
        ("the Acorn-House", {NAME: "acorn house"}, {NAME: "Acorn-House"}, Cause.FORMAT),
        ("at 5:30pm", {TIME: "17:30"}, {TIME: "5:30pm"}, Cause.FORMAT),
        ("up north", {AREA: "north"}, {AREA: "up"}, Cause.FORMAT),
        ("take me there", {TO: "acorn"}, {TO: "there"}, Cause.COREFERENCE),
        ("to the guest house", {TO: "acorn"}, {TO: "the guest house"}, Cause.COREFERENCE),
        ("take me there", {TO: "acorn", NAME: "acorn"}, {NAME: "acorn"}, Cause.COREFERENCE),
        ("a hotel", {}, {NAME: "ritz"}, Cause.GROUNDING),
        ("ritz or acorn", {NAME: "acorn"}, {NAME: "ritz"}, Cause.OTHER),
        ("the acorn", {NAME: "acorn"}, {}, Cause.OTHER),
        ("somewhere", {}, {AREA: "south"}, Cause.OTHER),
    ],
)
def test_the_cause_of_an_error(
    tmp_path: Path, text: str, gold: dict[Any, str], pred: dict[Any, str], cause: Cause
) -> None:
    assert only(analysis(tmp_path, (text, gold, pred))).cause is cause


def test_a_value_that_gold_has_left_behind_is_stale(tmp_path: Path) -> None:
    found = analysis(
        tmp_path, ("acorn", {NAME: "acorn"}, {NAME: "acorn"}), ("no, ritz", {NAME: "ritz"}, {NAME: "acorn"})
    )
    assert (only(found).cause, only(found).kind, only(found).user_turn) == (Cause.STALE, ErrorKind.WRONG, 1)


def test_episodes_last_until_they_are_repaired(tmp_path: Path) -> None:
    gold = {NAME: "acorn", AREA: "north"}
    found = analysis(
        tmp_path,
        ("acorn up north", gold, gold),
        ("x", gold, {NAME: "acorn"}),
        ("x", gold, {NAME: "acorn"}),
        ("x", gold, gold),
        ("x", gold, {AREA: "north"}),
    )
    episodes = [(e.slot, e.user_turn, e.length, e.repaired) for e in found.episodes]
    assert episodes == [(SlotRef(*AREA), 1, 2, True), (SlotRef(*NAME), 4, 1, False)]
    assert found.first_errors == {1: 1}
    assert found.wrong_slots == {SlotRef(*AREA): {ErrorKind.MISSED: 2}, SlotRef(*NAME): {ErrorKind.MISSED: 1}}
    assert found.gold_slots[SlotRef(*AREA)] == 5


def test_tables_and_plain_data(tmp_path: Path) -> None:
    found = analysis(tmp_path, ("a hotel", {}, {NAME: "ritz"}), ("a hotel", {}, {}))
    slots, causes, time = found.tables()
    assert slots.rows == (("hotel", "hotel-name", 0, 0, 1, 0),)
    assert causes.rows[0][:5] == ("grounding", 1, 1.0, 1.0, 1.0)
    assert time.rows == (("never", 0), ("1", 1))
    assert found.to_dict()["examples"]["grounding"][0]["pred"] == "ritz"


def test_a_faultless_run(tmp_path: Path) -> None:
    found = analysis(tmp_path, ("acorn", {NAME: "acorn"}, {NAME: "acorn"}))
    assert found.episodes == ()
    assert found.tables()[2].rows == (("never", 1),)


def test_what_the_validator_was_worth(tmp_path: Path) -> None:
    fired = {
        "rule": "schema.type",
        "call": 1,
        "service": "taxi",
        "slot": "taxi-leaveat",
        "value": "5pm",
        "expected": "",
    }
    turn = {
        "gold": whole_state({TIME: "17:00"}),
        "state": slot_values({TIME: "17:00"}),
        "first_proposal": slot_values({TIME: "5pm"}),
        "fired": [fired],
        "outcome": "corrected",
    }
    (found,) = analyse_run(write_run(tmp_path / "run", turn_rows("d", [turn]), schema=SCHEMA))
    table = found.tables()[3]
    assert table.rows == (("schema.type", 1, 1.0, 0.0, 1),)
    assert table.notes == ("Exact joint goal 100.00, from first proposals alone 0.00.",)
