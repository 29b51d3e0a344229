"""The MultiWOZ 2.2 reader: what of the SGD form is kept, and that gold is as the reader of 2.1 gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker
from dialoom.errors import BadInput
from dialoom.metrics import mwzeval_gold
from dialoom.metrics._build import build
from dialoom.reader import check_against, open_dialogues
from dialoom.schema_files import load_schema
from dialoom.scoring import is_multiwoz
from support.records import sorted_out, write_json
from support.shared import ROOT, shared_path
from support.traces import frame, turn_rows, turns_table

DOMAINS = ("restaurant", "taxi", "train", "bus", "police", "hotel", "attraction", "hospital")
SCHEMA = load_schema(ROOT / "schemas" / "multiwoz.yaml")


def user(**state: Mapping[str, list[str]]) -> dict[str, Any]:
    """A user turn: a frame for every domain, filled as ``state`` says."""
    frames = [
        {
            "service": d,
            "actions": [],
            "slots": [],
            "state": {
                "active_intent": f"find_{d}" if d in state else "NONE",
                "requested_slots": [f"{d}-phone"] if d in state else [],
                "slot_values": {f"{d}-{slot}": forms for slot, forms in state.get(d, {}).items()},
            },
        }
        for d in DOMAINS
    ]
    return {"frames": frames, "speaker": "USER", "turn_id": "0", "utterance": "hi"}


def system() -> dict[str, Any]:
    frames = [{"service": "hotel", "actions": [], "slots": [{"slot": "hotel-name", "start": 0, "value": "x"}]}]
    return {"frames": frames, "speaker": "SYSTEM", "turn_id": "1", "utterance": "yes"}


def record(*turns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"dialogue_id": "MUL1.json", "services": ["hotel"], "turns": list(turns), **fields}


def read(path: Path) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues("multiwoz22", [path]))


def one(folder: Path, *turns: dict[str, Any], **fields: Any) -> Dialogue:
    ((dialogue,), bad) = read(write_json(folder / "dialogues_001.json", [record(*turns, **fields)]))
    assert not bad
    return dialogue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mwz22")


def test_gold_is_one_frame_for_each_domain_with_a_value(folder: Path) -> None:
    dialogue = one(
        folder,
        user(hotel={"area": ["north", "the north"]}, police={}),
        system(),
        user(hotel={"area": ["north"]}, train={"leaveat": ["02:45", "after 02:30"]}),
    )
    assert [turn.frames for turn in dialogue.turns] == [
        (Frame("hotel", {"hotel-area": ("north", "the north")}),),
        None,
        (Frame("train", {"train-leaveat": ("02:45", "after 02:30")}), Frame("hotel", {"hotel-area": ("north",)})),
    ]


def test_annotated_services_are_no_candidates(folder: Path) -> None:
    dialogue = one(folder, user(), filename="MUL1.json")
    assert dialogue.services == ()
    assert dialogue.extra == {"filename": "MUL1.json", "services": ["hotel"]}


def test_a_turn_with_nothing_set_is_labelled_and_one_without_frames_is_not(folder: Path) -> None:
    bare = {"speaker": "USER", "utterance": "hi"}
    assert [turn.frames for turn in one(folder, user(police={}), system(), bare).turns] == [(), None, None]


def test_slots_that_only_inform_are_dropped_and_all_others_kept(folder: Path) -> None:
    theirs = json.loads(shared_path("multiwoz", "mwz22_schema.json").read_bytes())
    state = {s["service_name"]: {x["name"].partition("-")[2]: ["v"] for x in s["slots"]} for s in theirs}
    dialogue = one(folder, user(**state))
    ours = {(f.service, slot) for f in dialogue.turns[0].frames or () for slot in f.slot_values}
    assert ours == {(s.name, slot.name) for s in SCHEMA.services.values() for slot in s.slots}
    assert len(ours) == 61 - 25
    assert check_against(dialogue, SCHEMA) == []


def test_a_slot_nobody_knows_is_kept_and_named_by_the_check(folder: Path) -> None:
    dialogue = one(folder, user(hotel={"breakfast": ["yes"], "phone": ["1"]}))
    (problem,) = check_against(dialogue, SCHEMA)
    assert problem.startswith("turn 0: service 'hotel' has no slot 'hotel-breakfast'.")


def test_a_bad_record_costs_itself_only(folder: Path) -> None:
    path = folder / "dialogues_001.json"
    write_json(path, [record(user(hotel={"area": []})), record(user(), dialogue_id="b")])
    dialogues, (bad,) = read(path)
    assert [d.dialogue_id for d in dialogues] == ["b"]
    assert (bad.dialogue_id, bad.what) == ("MUL1.json", "slot 'hotel-area' has an empty list of values")


FORMS = st.lists(st.sampled_from(["north", "dontcare", "17:15", "none", "Cafe"]), min_size=1, max_size=2, unique=True)
STATES = st.dictionaries(st.sampled_from(DOMAINS), st.dictionaries(st.sampled_from(["area", "phone"]), FORMS))


@given(st.lists(STATES, min_size=1, max_size=4))
def test_every_tracked_value_comes_through_in_order(
    folder: Path, states: list[dict[str, dict[str, list[str]]]]
) -> None:
    dialogue = one(folder, *(user(**state) for state in states))
    for turn, state in zip(dialogue.turns, states, strict=True):
        found = {(f.service, s): list(v) for f in turn.frames or () for s, v in f.slot_values.items()}
        assert found == {
            (d, f"{d}-{slot}"): forms
            for d, slots in state.items()
            for slot, forms in slots.items()
            if slot == "area" or d in {"bus", "train"}
        }
        assert Dialogue.from_json(dialogue.to_json()).turns == dialogue.turns


def score_of(dialogues: list[Dialogue], predicted: list[dict[tuple[str, str], str]]) -> dict[str, float | None]:
    """The mwzeval figures of real gold, for one prediction a user turn of all dialogues."""
    rows: list[dict[str, Any]] = []
    states = iter(predicted)
    for dialogue in dialogues:
        turns = [
            {
                "gold": [frame(f.service, f.slot_values, f.active_intent, f.requested_slots) for f in t.frames or ()],
                "state": [{"service": d, "slot": s, "value": v} for (d, s), v in next(states).items()],
            }
            for t in dialogue.turns
            if t.speaker is Speaker.USER
        ]
        rows += turn_rows(dialogue.dialogue_id, turns)
    data = build(turns_table(rows))
    assert is_multiwoz(data)
    assert data.goals is None
    found = mwzeval_gold.PLUGIN.score(data, frozenset({"state"}))
    return {name: measured.overall.value for name, measured in found.items()}


def test_mwzeval_takes_the_first_form_and_drops_dontcare(folder: Path) -> None:
    dialogue = one(folder, user(hotel={"area": ["dontcare"], "name": ["acorn house", "the acorn"]}))
    first = {("hotel", "hotel-name"): "acorn guest house"}
    assert score_of([dialogue], [first])["joint_accuracy"] == pytest.approx(1, abs=1e-9)
    assert score_of([dialogue], [{("hotel", "hotel-name"): "the acorn"}])["joint_accuracy"] == 0
    assert score_of([dialogue], [{**first, ("hotel", "hotel-area"): "dontcare"}])["joint_accuracy"] == 0


EXAMPLES = ("multiwoz", "mwz22_examples", "MULTIWOZ2_2_original_examples.json")


@pytest.mark.shared
def test_the_public_examples_are_read_whole() -> None:
    path = shared_path(*EXAMPLES)
    records = json.loads(path.read_bytes())
    dialogues, bad = read(path)
    assert not bad
    assert [d.dialogue_id for d in dialogues] == [r["dialogue_id"] for r in records]
    for dialogue, given_record in zip(dialogues, records, strict=True):
        assert dialogue.extra == {"services": given_record["services"], "filename": given_record["filename"]}
        assert check_against(dialogue, SCHEMA) == []
        for turn, given_turn in zip(dialogue.turns, given_record["turns"], strict=True):
            assert (turn.text, turn.speaker.name) == (given_turn["utterance"], given_turn["speaker"])
            if turn.speaker is Speaker.SYSTEM:
                assert turn.frames is None
                continue
            assert {f["service"] for f in given_turn["frames"]} == set(DOMAINS)
            wanted = {k: tuple(v) for f in given_turn["frames"] for k, v in f["state"]["slot_values"].items()}
            assert {k: v for f in turn.frames or () for k, v in f.slot_values.items()} == wanted
            assert all(f.slot_values and f.active_intent is None for f in turn.frames or ())


@pytest.mark.shared
def test_gold_of_the_public_examples_scores_full_and_one_wrong_value_does_not() -> None:
    dialogues, _ = read(shared_path(*EXAMPLES))
    states = [
        {(f.service, slot): forms[0] for f in t.frames or () for slot, forms in f.slot_values.items()}
        for d in dialogues
        for t in d.turns
        if t.speaker is Speaker.USER
    ]
    full = score_of(dialogues, states)
    assert full["joint_accuracy"] == pytest.approx(1, abs=1e-9)
    assert full["slot_f1"] == pytest.approx(1, abs=1e-9)
    states[-1] = {**states[-1], ("attraction", "attraction-area"): "south"}
    assert score_of(dialogues, states)["joint_accuracy"] == pytest.approx(1 - 1 / len(states), abs=1e-9)
