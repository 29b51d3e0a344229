"""The SGD reader: round trips, bad records one by one, and the public test files against json.load."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Speaker
from dialoom.errors import BadInput
from dialoom.reader import check_against, open_dialogues
from dialoom.schema_files import load_schema
from support.records import DIALOGUES, sgd_dialogue, sgd_turn, sorted_out, write_json
from support.shared import shared_path


def read(path: Path) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues("sgd", [path]))


def one_bad(path: Path, record: Any) -> BadInput:
    """What becomes of a bad record between two good ones, which must both come through."""
    write_json(path, [sgd_dialogue("before"), record, sgd_dialogue("after")])
    dialogues, bad = read(path)
    assert [d.dialogue_id for d in dialogues] == ["before", "after"]
    (only,) = bad
    assert only.content_hash
    return only


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sgd") / "dialogues_001.json"


def as_sgd(dialogue: Dialogue) -> dict[str, Any]:
    """The official form of ``dialogue``, written down apart from the reader."""
    turns = []
    for turn in dialogue.turns:
        frames = [
            {
                "service": f.service,
                "actions": [],
                "state": {
                    "active_intent": f.active_intent,
                    "requested_slots": list(f.requested_slots or ()),
                    "slot_values": {k: list(v) for k, v in f.slot_values.items()},
                },
            }
            for f in turn.frames or ()
        ]
        turns.append({"speaker": turn.speaker.name, "utterance": turn.text, "frames": frames})
    return {"dialogue_id": dialogue.dialogue_id, "services": list(dialogue.services), "turns": turns}


@given(st.lists(DIALOGUES, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, 2]))
def test_what_is_written_is_read(file: Path, dialogues: list[Dialogue], packed: bool, indent: int | None) -> None:
    text = json.dumps([as_sgd(d) for d in dialogues], indent=indent).encode()
    file.write_bytes(gzip.compress(text) if packed else text)
    found, bad = read(file)
    assert not bad
    assert [d.to_json(with_source=False) for d in found] == [d.to_json(with_source=False) for d in dialogues]


def test_all_surface_forms_intent_and_requests_are_kept(file: Path) -> None:
    turn = sgd_turn(time=["7 pm", "seven"])
    turn["frames"][0]["state"]["requested_slots"] = ["address"]
    write_json(file, [{**sgd_dialogue("d", turn, sgd_turn("SYSTEM")), "scenario": {"n": 1}}])
    ((dialogue,), _) = read(file)
    user, system = dialogue.turns
    assert user.frames is not None
    assert user.frames[0].slot_values == {"time": ("7 pm", "seven")}
    assert (user.frames[0].active_intent, user.frames[0].requested_slots) == ("FindCafe", ("address",))
    assert (system.speaker, system.frames) == (Speaker.SYSTEM, None)
    assert dialogue.extra == {"scenario": {"n": 1}}
    assert dialogue.source == f"{file}:1 (byte 1)"


def test_a_user_turn_without_frames_is_not_labelled_and_one_with_none_is(file: Path) -> None:
    write_json(file, [sgd_dialogue("d", {"speaker": "USER", "utterance": "a"}, {**sgd_turn(), "frames": []})])
    ((dialogue,), _) = read(file)
    assert [turn.frames for turn in dialogue.turns] == [None, ()]


BROKEN: list[tuple[Any, str, str]] = [
    ("text", "a dialogue must be an object, but is a text", ""),
    ({**sgd_dialogue("x"), "turns": []}, "the dialogue has no turns", "x"),
    ({**sgd_dialogue("x"), "turns": {}}, "field 'turns' must be a list, but is an object", "x"),
    ({**sgd_dialogue("x"), "services": "Cafes_1"}, "field 'services' must be a list of texts, but is a text", "x"),
    ({**sgd_dialogue("x"), "services": [1]}, "a list with a number", "x"),
    ({"dialogue_id": "x", "services": []}, "field 'turns' is missing", "x"),
    ({"services": [], "turns": [sgd_turn()]}, "field 'dialogue_id' is missing", ""),
    ({**sgd_dialogue(" "), "n": 1}, "1 to 1000 characters", ""),
    ({**sgd_dialogue("x"), "dialogue_id": None}, "must be a text, but is null", ""),
    (sgd_dialogue("x", sgd_turn(), {**sgd_turn(), "speaker": "BOT"}), "unknown speaker 'BOT'", "x"),
    (sgd_dialogue("x", {"speaker": "USER"}), "field 'utterance' is missing", "x"),
    (sgd_dialogue("x", {**sgd_turn(), "utterance": 5}), "field 'utterance' must be a text, but is a number", "x"),
    (sgd_dialogue("x", {**sgd_turn(), "frames": True}), "must be a list, but is true or false", "x"),
    (sgd_dialogue("x", {**sgd_turn(), "frames": [{"service": "Cafes_1"}]}), "field 'state' is missing", "x"),
    (sgd_dialogue("x", sgd_turn(time=[])), "slot 'time' has an empty list of values", "x"),
    (sgd_dialogue("x", sgd_turn(time="7 pm")), "slot 'time' must be a list of texts, but is a text", "x"),  # type: ignore[arg-type]
    ({**sgd_dialogue("x"), "deep": json.loads("[" * 300 + "]" * 300)}, "nested deeper than 100 levels", "x"),
]


@pytest.mark.parametrize(("record", "what", "own_id"), BROKEN)
def test_a_bad_record_says_what_and_where_and_costs_nothing_else(
    file: Path, record: Any, what: str, own_id: str
) -> None:
    bad = one_bad(file, record)
    assert what in bad.what
    assert bad.where.startswith(f"{file}:1 (byte ")
    assert bad.dialogue_id == (own_id or f"dialogues_001.json#{bad.where.partition('byte ')[2].partition(')')[0]}")


def test_the_place_inside_a_dialogue_is_named(file: Path) -> None:
    bad = one_bad(file, sgd_dialogue("x", sgd_turn(), sgd_turn("SYSTEM"), sgd_turn(time=[])))
    assert bad.where.endswith("turn 2, service 'Cafes_1'")


def test_broken_json_in_the_middle_names_line_and_id(file: Path) -> None:
    text = json.dumps([sgd_dialogue(f"d{i}") for i in range(3)], indent=1)
    file.write_text(text.replace('"dialogue_id": "d1"', '"dialogue_id": "d1" "oops"'))
    dialogues, (bad,) = read(file)
    assert [d.dialogue_id for d in dialogues] == ["d0", "d2"]
    line = next(i for i, part in enumerate(file.read_text().split("\n"), 1) if "oops" in part)
    assert bad.dialogue_id == "d1"
    assert bad.where.startswith(f"{file}:{line} (byte ")
    assert bad.what == "broken JSON: Expecting ',' delimiter"


def test_odd_text_survives(file: Path) -> None:
    odd = ["\ud800 lone", "nul \x00 nul", "\U0001f600 \u202e rtl", "x" * 200_000, "", "line\nbreak\r\n"]
    write_json(file, [sgd_dialogue("d", *(sgd_turn(text=text) for text in odd))])
    ((dialogue,), bad) = read(file)
    assert not bad
    assert [turn.text for turn in dialogue.turns] == odd
    again = Dialogue.from_json(dialogue.to_json())
    assert [turn.text for turn in again.turns] == ["\\ud800 lone", *odd[1:]]
    assert again.content_hash() == dialogue.content_hash()


def test_raw_control_characters_and_not_a_number_are_let_pass(file: Path) -> None:
    text = json.dumps([{**sgd_dialogue("d", sgd_turn(text="A")), "score": 1}])
    file.write_text(text.replace('"A"', '"a\x00\tb"').replace('"score": 1', '"score": NaN'))
    ((dialogue,), bad) = read(file)
    assert not bad
    assert dialogue.turns[0].text == "a\x00\tb"
    assert dialogue.content_hash()


def test_text_in_another_encoding_is_a_bad_input_with_its_byte(file: Path) -> None:
    text = json.dumps([sgd_dialogue("好"), sgd_dialogue("d", sgd_turn(text="XX"))], ensure_ascii=False)
    file.write_bytes(text.encode().replace(b"XX", "茶馆".encode("gb18030")))
    dialogues, (bad,) = read(file)
    assert [d.dialogue_id for d in dialogues] == ["好"]
    assert bad.dialogue_id == "d"
    assert bad.what == "the text is not UTF-8"
    assert f"(byte {file.read_bytes().index('茶馆'.encode('gb18030'))})" in bad.where
    assert "iconv" in bad.hint


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_give_rows_and_no_exception(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    dialogues, bad = read(file)
    assert dialogues or bad or data.strip() in (b"[]", b"[ ]")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=5,
)


@given(st.data(), JSON)
def test_any_value_anywhere_gives_one_row(file: Path, data: st.DataObject, value: Any) -> None:
    record = sgd_dialogue("d", sgd_turn(time=["7 pm"]), sgd_turn("SYSTEM"))
    node: Any = record
    while True:
        key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if not node[key] or not isinstance(node[key], (dict, list)) or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = value
    write_json(file, [record])
    dialogues, bad = read(file)
    assert len(dialogues) + len(bad) == 1
    if dialogues:
        assert Dialogue.from_json(dialogues[0].to_json()).content_hash() == dialogues[0].content_hash()


@pytest.mark.shared
def test_the_public_test_files_are_read_whole() -> None:
    folder = shared_path("sgd", "test")
    schema = load_schema(folder / "schema.json")
    records = [r for path in sorted(folder.glob("dialogues_*.json")) for r in json.loads(path.read_bytes())]
    dialogues, bad = read(folder)
    assert not bad
    assert len(dialogues) == len(records) > 1600
    for dialogue, record in zip(dialogues, records, strict=True):
        assert (dialogue.dialogue_id, list(dialogue.services)) == (record["dialogue_id"], record["services"])
        assert [t.text for t in dialogue.turns] == [t["utterance"] for t in record["turns"]]
        for turn, given_turn in zip(dialogue.turns, record["turns"], strict=True):
            states = {f["service"]: f["state"] for f in given_turn["frames"] if "state" in f}
            assert (turn.frames is None) == (given_turn["speaker"] == "SYSTEM")
            assert {
                f.service: {
                    "active_intent": f.active_intent,
                    "requested_slots": list(f.requested_slots or ()),
                    "slot_values": {k: list(v) for k, v in f.slot_values.items()},
                }
                for f in turn.frames or ()
            } == states
        assert not check_against(dialogue, schema)


@pytest.mark.shared
def test_multiwoz_2_2_is_in_the_same_format() -> None:
    path = shared_path("multiwoz", "mwz22_examples", "MULTIWOZ2_2_original_examples.json")
    schema = load_schema(shared_path("multiwoz", "mwz22_schema.json"))
    dialogues, bad = read(path)
    assert not bad
    assert len(dialogues) == len(json.loads(path.read_bytes()))
    assert not [problem for dialogue in dialogues for problem in check_against(dialogue, schema)]
