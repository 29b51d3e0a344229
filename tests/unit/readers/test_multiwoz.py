"""The MultiWOZ reader: what is a value, whose state it is, split lists, and the public test set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Speaker
from dialoom.errors import BadInput, JobError
from dialoom.reader import check_against, open_dialogues
from dialoom.schema_files import load_schema
from support.records import mwz_dialogue, sorted_out, write_json
from support.shared import ROOT, shared_path


def read(path: Path, **options: Any) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues("multiwoz", [path], options))


def gold(dialogue: Dialogue) -> list[dict[str, tuple[str, ...]] | None]:
    """Slot to values over all frames, for each user turn."""
    return [
        None if t.frames is None else {slot: v for f in t.frames for slot, v in f.slot_values.items()}
        for t in dialogue.turns
        if t.speaker is Speaker.USER
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multiwoz") / "data.json"


def test_the_state_after_a_user_turn_is_in_the_next_system_turn(file: Path) -> None:
    first: Any = {"hotel": {"semi": {"area": "north", "name": ""}, "book": {"booked": [{"name": "x"}], "day": ""}}}
    second: Any = {
        "hotel": {"semi": {"area": "north"}, "book": {"day": "monday", "people": "2", "stay": "3"}},
        "taxi": {"semi": {"leaveAt": "17:15", "arriveBy": "not mentioned"}, "book": {}},
    }
    write_json(file, {"MUL0001.json": mwz_dialogue(first, second)})
    ((dialogue,), bad) = read(file)
    assert not bad
    assert gold(dialogue) == [
        {"hotel-area": ("north",)},
        {
            "hotel-area": ("north",),
            "hotel-bookday": ("monday",),
            "hotel-bookpeople": ("2",),
            "hotel-bookstay": ("3",),
            "taxi-leaveat": ("17:15",),
        },
    ]
    assert [[f.service for f in t.frames or ()] for t in dialogue.turns] == [["hotel"], [], ["hotel", "taxi"], []]
    assert dialogue.turns[1].frames is None
    assert {(f.active_intent, f.requested_slots) for f in dialogue.turns[2].frames or ()} == {(None, None)}
    assert (dialogue.dialogue_id, dialogue.services) == ("MUL0001.json", ())
    assert dialogue.extra == {"goal_domains": ["hotel"]}


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("", ()),
        ("not mentioned", ()),
        (" Not Mentioned ", ()),
        ("dont care", ("dontcare",)),
        ("don't care", ("dontcare",)),
        ("do not care", ("dontcare",)),
        ("dontcare", ("dontcare",)),
        ("none", ("none",)),
        ("Cafe Uno", ("Cafe Uno",)),
        ("centre|west", ("centre|west",)),
        (4, ("4",)),
        (["centre", "", "west"], ("centre", "west")),
        ([], ()),
    ],
)
def test_what_is_a_value(file: Path, value: Any, forms: tuple[str, ...]) -> None:
    write_json(file, {"a": mwz_dialogue({"hotel": {"semi": {"price range": value}}})})
    ((dialogue,), _) = read(file)
    assert gold(dialogue) == [{"hotel-pricerange": forms} if forms else {}]


def test_a_last_user_turn_without_an_answer_has_no_gold(file: Path) -> None:
    record = mwz_dialogue({"hotel": {"semi": {}, "book": {}}})
    record["log"].append({"text": "bye", "metadata": {}})
    write_json(file, {"a": record})
    ((dialogue,), _) = read(file)
    assert gold(dialogue) == [{}, None]


BROKEN: list[tuple[Any, str]] = [
    ([], "a dialogue must be an object, but is a list"),
    ({"goal": {}}, "field 'log' is missing"),
    ({"goal": {}, "log": []}, "the dialogue has no turns"),
    ({"goal": [], "log": [{"text": "a"}]}, "field 'goal' must be an object"),
    ({"log": [{"text": "a"}, "b"]}, "a turn must be an object, but is a text"),
    ({"log": [{"metadata": {}}]}, "field 'text' is missing"),
    ({"log": [{"text": "a"}, {"text": "b", "metadata": {}}]}, "a system turn without metadata"),
    ({"log": [{"text": "a", "metadata": {"hotel": {}}}]}, "a user turn with metadata"),
    ({"log": [{"text": "a"}, {"text": "b", "metadata": []}]}, "field 'metadata' must be an object"),
    (mwz_dialogue({"hotel": []}), "domain 'hotel' must be an object"),  # type: ignore[dict-item]
    (mwz_dialogue({"hotel": {"semi": ["x"]}}), "'semi' of 'hotel' must be an object"),  # type: ignore[dict-item]
    (mwz_dialogue({"hotel": {"semi": {"area": {"x": 1}}}}), "slot 'hotel-area' must be a text, but is an object"),
]


@pytest.mark.parametrize(("record", "what"), BROKEN)
def test_a_bad_record_costs_itself_only(file: Path, record: Any, what: str) -> None:
    write_json(file, {"before": mwz_dialogue({}, {}), "x": record, "after": mwz_dialogue({"hotel": {}})})
    dialogues, bad = read(file)
    assert [d.dialogue_id for d in dialogues] == ["after"]
    assert [b.dialogue_id for b in bad] == ["before", "x"]  # a system turn with an empty state is not in the format
    assert what in bad[1].what


def test_split_lists_choose_and_what_they_name_in_vain_is_a_bad_input(file: Path, tmp_path: Path) -> None:
    write_json(file, {f"d{i}.json": mwz_dialogue({"hotel": {}}) for i in range(4)})
    lines = tmp_path / "testListFile.txt"
    lines.write_text("d3.json\r\n\nd1\nlost.json\n")
    as_json = write_json(tmp_path / "testListFile.json", ["d3.json", "d1", "lost.json"])
    for ids in (lines, as_json):
        dialogues, bad = read(file, ids=str(ids))
        assert [d.dialogue_id for d in dialogues] == ["d1.json", "d3.json"]
        assert [(b.dialogue_id, b.where) for b in bad] == [("lost", str(ids))]


def test_faults_are_not_hidden_by_a_split_list(file: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("a\nb")
    good = json.dumps(mwz_dialogue({"hotel": {}}))
    file.write_text(f'{{\n"a": {good},\n"c": {{"log": [}},\n"b": {good}\n')
    dialogues, bad = read(file, ids=str(tmp_path / "ids.txt"))
    assert [d.dialogue_id for d in dialogues] == ["a", "b"]
    assert [b.what for b in bad] == ["the file ends before its closing bracket: it may be cut off"]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("none.txt", None, "cannot read the split list"),
        ("empty.txt", b" \n\n", "the split list is empty"),
        ("bad.json", b"[1]", "not a list of texts"),
        ("bad.json", b"[", "cannot be read"),
        ("bad.txt", b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_wrong_split_list_is_an_error_of_the_job(
    file: Path, tmp_path: Path, name: str, content: bytes | None, what: str
) -> None:
    write_json(file, {})
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(JobError, match=what):
        read(file, ids=str(tmp_path / name))


def test_beside_data_json_only_dialogues_are_taken_from_a_folder(tmp_path: Path) -> None:
    for name in ("data.json", "ontology.json", "hotel_db.json", "valListFile.json", "dialogue_acts.json", "a.txt"):
        write_json(tmp_path / name, {"d": mwz_dialogue({"hotel": {}})} if name == "data.json" else [])
    dialogues, bad = read(tmp_path)
    assert (len(dialogues), bad) == (1, [])


@given(st.binary(max_size=120) | st.text(max_size=80).map(str.encode))
def test_any_bytes_give_rows_and_no_exception(file: Path, data: bytes) -> None:
    for text in (data, b'{"a": ' + data + b"}", b'{"a": {"log": [' + data + b"]}}"):
        file.write_bytes(text)
        dialogues, bad = read(file)
        assert dialogues or bad or text.strip() in (b"{}", b"{ }")


def independent_states(record: Any) -> list[dict[tuple[str, str, str], str]]:
    """Domain, part and field to value after each user turn, read straight from the file."""
    return [
        {
            (domain, part, field): value
            for domain, parts in turn["metadata"].items()
            for part in ("semi", "book")
            for field, value in parts[part].items()
            if field != "booked" and value not in ("", "not mentioned")
        }
        for turn in record["log"][1::2]
    ]


@pytest.mark.shared
def test_the_public_test_set_is_read_whole() -> None:
    folder = shared_path("multiwoz", "mwz21", "test")
    schema = load_schema(ROOT / "schemas" / "multiwoz.yaml")
    records: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        records.update(json.loads(path.read_bytes()))
    dialogues, bad = read(folder)
    assert not bad
    assert [d.dialogue_id for d in dialogues] == list(records)
    assert len(dialogues) == 1000
    assert sum(len(gold(d)) for d in dialogues) == 7372
    for dialogue in dialogues:
        record = records[dialogue.dialogue_id]
        states = independent_states(record)
        assert [t.text for t in dialogue.turns] == [t["text"] for t in record["log"]]
        for found, state in zip(gold(dialogue), states, strict=True):
            assert found is not None
            wanted = {
                f"{domain}-{'book' * (part == 'book')}{field.lower()}": value
                for (domain, part, field), value in state.items()
            }
            assert found == {slot: (value,) for slot, value in wanted.items()}
        assert dialogue.extra["goal_domains"] == [
            domain for domain in dialogue.extra["goal_domains"] if record["goal"][domain]
        ]
        assert set(dialogue.extra["goal_domains"]) == {
            k for k, v in record["goal"].items() if v and k not in ("message", "topic")
        }
        assert not check_against(dialogue, schema)
