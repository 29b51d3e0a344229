"""Schema files: both forms, mistakes with their lines, and the schemas that come with the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import SchemaError
from dialoom.reader import check_against, open_dialogues
from dialoom.schema import Schema, SlotType
from dialoom.schema_files import load_schema
from support.shared import ROOT, shared_path

GOOD = """\
name: cafes
dontcare: no
services:
  - service_name: cafe
    description: Find a café
    kinds: [cafe, coffee house]
    slots:
      - name: open_at
        description: When it must be open
        type: time
        possible_values: [12:30, 9:00]
      - name: has_wifi
        is_categorical: yes
        possible_values: [True, False]
      - name: outdoor
        is_categorical: true
        possible_values: [yes, no]
      - name: area
        is_categorical: true
        possible_values:
    intents:
      - name: find
        optional_slots: [open_at, area]
        required_slots:
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schemas")


def load(folder: Path, text: str | bytes, name: str = "s.yaml") -> Schema:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_schema(path)


def test_yaml_values_are_texts_whatever_they_look_like(folder: Path) -> None:
    schema = load(folder, GOOD)
    assert (schema.name, schema.dontcare, schema.source) == ("cafes", False, str(folder / "s.yaml"))
    cafe = schema.services["cafe"]
    assert cafe.kinds == ("cafe", "coffee house")
    assert cafe.slot_by_name["open_at"].values == ("12:30", "9:00")
    assert {s.name: (s.is_categorical, s.values, s.type) for s in cafe.slots[1:]} == {
        "has_wifi": (True, ("True", "False"), SlotType.BOOLEAN),
        "outdoor": (True, ("yes", "no"), SlotType.TEXT),
        "area": (True, (), SlotType.TEXT),
    }
    assert cafe.intent_by_name["find"].optional_slots == {"open_at": "", "area": ""}


def test_names_go_from_the_call_over_the_file_to_the_stem(folder: Path) -> None:
    load(folder, GOOD)
    assert load_schema(folder / "s.yaml", name="mine").name == "mine"
    assert load(folder, GOOD.replace("name: cafes\n", ""), "stem.yaml").name == "stem"


MISTAKES = [
    ("dontcare: no", "dontcre: no", 2, "unknown field 'dontcre'", "Did you mean 'dontcare'"),
    ("    kinds:", "    kind:", 6, "unknown field 'kind'", "Did you mean 'kinds'"),
    ("type: time", "typ: time", 10, "unknown field 'typ'", "Did you mean 'type'"),
    ("type: time", "type: tme", 10, "unknown type 'tme'", "Did you mean 'time'? Allowed: text, time"),
    ("is_categorical: yes", "is_categorical: perhaps", 13, "services.0.slots.1.is_categorical: Input should be", ""),
    ("[True, False]", "True", 14, "possible_values", ""),
    ("service_name: cafe", "service: cafe", 4, "field 'service_name' is missing", ""),
    ("name: open_at\n", 'name: ""\n', 8, "at least 1 character", ""),
    ("- name: has_wifi", "- name: open_at", 12, "slot 'open_at' occurs twice", ""),
    ("[open_at, area]", "[open_at, aera]", 23, "which is no slot of the service", "Did you mean 'area'"),
    ("name: find", "name: NONE", 22, "cannot name an intent", ""),
    ("        type: time\n", "        type: time\n        type: date\n", 11, "field 'type' occurs twice", ""),
    ("kinds: [cafe", "kinds: [[cafe", 7, "broken YAML", ""),
    ("[cafe, coffee house]", "{cafe: x}", 6, "services.0.kinds: Input should be a list, found {'cafe': 'x'}", ""),
]


@pytest.mark.parametrize(("right", "wrong", "line", "what", "hint"), MISTAKES)
def test_a_mistake_is_reported_with_its_line(
    folder: Path, right: str, wrong: str, line: int, what: str, hint: str
) -> None:
    assert right in GOOD
    with pytest.raises(SchemaError) as caught:
        load(folder, GOOD.replace(right, wrong))
    assert caught.value.where == f"{folder / 's.yaml'}:{line}"
    assert what in caught.value.what
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "where", "what"),
    [
        ("a.json", b"[", ":1", "broken JSON"),
        ("a.json", b'[\n{"service_name": "a",}]', ":2", "broken JSON"),
        ("a.json", b'[\n{"service_name": "a"},\n{"service_name": "a"}]', ":3", "service 'a' occurs twice"),
        ("a.json", b'[\n\t{"service_name": "a",\n\t"slots": [{}]}]', ":3", "field 'name' is missing"),
        ("a.json", b'[\n{"service_name": "a", "slot": []}]', ":2", "unknown field 'slot'"),
        ("a.json", b"3", ":1", "a schema must be a list of services"),
        ("a.yaml", b"", "", "a schema must be a list of services"),
        ("a.yaml", b"text", ":1", "a schema must be a list of services"),
        ("a.yaml", b"services: []", ":1", "at least 1 item"),
        ("a.yaml", b"name: x", "", "field 'services' is missing"),
        ("a.yaml", b"\xff\xfe\x00", "", "broken YAML"),
        ("a.yaml", b"a: \x00", "", "broken YAML"),
        ("a.json", b'[{"service_name": "\xff"}]', ":1", "broken JSON"),
    ],
)
def test_what_is_no_schema_is_said(folder: Path, name: str, content: bytes, where: str, what: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load(folder, content, name)
    assert what in caught.value.what
    assert caught.value.where.startswith(f"{folder / name}{where}")


def test_a_path_that_is_not_there_names_the_nearest(folder: Path) -> None:
    load(folder, GOOD)
    with pytest.raises(SchemaError, match=rf"Did you mean '{folder}/s.yaml'"):
        load_schema(folder / "s.yml")
    with pytest.raises(SchemaError, match="Seen from"):
        load_schema(folder / "no" / "such.json")
    with pytest.raises(SchemaError, match="cannot read the file: Is a directory"):
        load_schema(folder)


def test_a_file_far_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialoom.schema_files.MAX_FILE_BYTES", 10)
    with pytest.raises(SchemaError, match="Is this a schema file"):
        load(folder, GOOD)


@given(st.binary(max_size=80) | st.text(max_size=60).map(str.encode), st.sampled_from(["f.yaml", "f.json"]))
def test_any_bytes_are_a_schema_or_a_schema_error(folder: Path, data: bytes, name: str) -> None:
    for text in (data, b"services: [" + data + b"]", b'[{"service_name": ' + data + b"}]"):
        try:
            schema = load(folder, text, name)
        except SchemaError as error:
            assert error.where
        else:
            assert schema.services


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
SLOT_RECORDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": WORDS,
        "description": st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        "is_categorical": st.booleans(),
        "possible_values": st.lists(WORDS, max_size=3),
        "type": st.sampled_from([t.value for t in SlotType]),
    }
)
SERVICE_RECORDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "service_name": WORDS,
        "description": WORDS,
        "kinds": st.lists(WORDS, max_size=2),
        "slots": st.lists(SLOT_RECORDS, max_size=3, unique_by=lambda s: str(s["name"])),
        "intents": st.just([]),
    }
)


@given(st.lists(SERVICE_RECORDS, min_size=1, max_size=3, unique_by=lambda s: str(s["service_name"])))
def test_what_a_schema_writes_it_reads_in_both_forms(folder: Path, records: list[dict[str, Any]]) -> None:
    as_json = load(folder, json.dumps(records), "x.json")
    assert as_json.to_records() == records
    as_yaml = load(folder, yaml.safe_dump({"name": "x", "services": records}), "x.yaml")
    assert as_yaml.digest == as_json.digest


@pytest.mark.shared
def test_public_service_definitions_are_read_as_they_are() -> None:
    folders = ["sgd/train", "sgd/dev", "sgd/test", *(f"sgd_x/v{i}/test" for i in range(1, 5))]
    for folder in folders:
        path = shared_path(*folder.split("/"), "schema.json")
        records = json.loads(path.read_bytes())
        schema = load_schema(path)
        assert list(schema.services) == [r["service_name"] for r in records]
        for record, service in zip(records, schema.services.values(), strict=True):
            for given_slot, slot in zip(record["slots"], service.slots, strict=True):
                assert (slot.name, slot.description) == (given_slot["name"], given_slot["description"])
                assert (slot.is_categorical, list(slot.values)) == (
                    given_slot["is_categorical"],
                    given_slot["possible_values"],
                )
                boolean = given_slot["is_categorical"] and set(given_slot["possible_values"]) == {"True", "False"}
                assert slot.type is (SlotType.BOOLEAN if boolean else SlotType.TEXT)
            assert [i.name for i in service.intents] == [i["name"] for i in record["intents"]]


@pytest.mark.shared
def test_our_multiwoz_schema_holds_the_facts_of_2_2() -> None:
    ours = load_schema(ROOT / "schemas" / "multiwoz.yaml")
    theirs = json.loads(shared_path("multiwoz", "mwz22_schema.json").read_bytes())
    assert set(ours.services) == {record["service_name"] for record in theirs}
    for record in theirs:
        service = ours.services[record["service_name"]]
        assert set(service.slot_by_name) == {s for i in record["intents"] for s in i["optional_slots"]}
        assert [i.name for i in service.intents] == [service.name]
        for slot in record["slots"]:
            mine = service.slot_by_name.get(slot["name"])
            if mine is None:
                continue
            assert mine.is_categorical == slot["is_categorical"]
            if slot["is_categorical"] and mine.name != "bus-day":
                assert sorted(mine.values) == sorted(slot["possible_values"])
            assert mine.description != slot["description"]


def test_slot_types_of_multiwoz() -> None:
    schema = load_schema(ROOT / "schemas" / "multiwoz.yaml")
    types = {slot.name: slot.type for service in schema.services.values() for slot in service.slots}
    by_ending = {"arriveby": "time", "leaveat": "time", "booktime": "time", "day": "day", "stars": "integer"}
    by_ending |= {"bookpeople": "integer", "bookstay": "integer"}
    for name, kind in types.items():
        wanted = next((t for ending, t in by_ending.items() if name.endswith(ending)), "text")
        assert kind.value == wanted, name
    assert all(service.kinds for service in schema.services.values())
    assert schema.dontcare


def test_the_bundled_sample_fits_its_schema() -> None:
    schema = load_schema(ROOT / "schemas" / "sample.yaml")
    found = list(open_dialogues("chat", [ROOT / "jobs" / "data" / "sample.jsonl"]))
    dialogues = [item for item in found if not hasattr(item, "what")]
    assert len(dialogues) == len(found) == 13
    seen: set[str] = set()
    both = 0
    for dialogue in dialogues:
        assert check_against(dialogue, schema) == []
        users = [turn for turn in dialogue.turns if turn.frames is not None]
        assert 3 <= len(users) <= 6
        before: dict[tuple[str, str], str] = {}
        said = ""
        for turn in dialogue.turns:
            said += turn.text + "\n"
            if turn.frames is None:
                continue
            state = {(f.service, slot): value for f in turn.frames for slot, (value,) in f.slot_values.items()}
            assert before.keys() <= state.keys()  # upsert cannot delete
            changed = {service for (service, slot), value in state.items() if before.get((service, slot)) != value}
            both += len(changed) > 1
            before = state
            for frame in turn.frames:
                service = schema.services[frame.service]
                assert frame.active_intent == "NONE" or frame.active_intent in service.intent_by_name
                for name, (value,) in frame.slot_values.items():
                    slot = service.slot_by_name[name]
                    seen.add(f"{slot.type.value} {'dontcare' if value == 'dontcare' else ''}".strip())
                    if slot.type is SlotType.TEXT and not slot.is_categorical and value != "dontcare":
                        assert value in said, (dialogue.dialogue_id, value)
                        assert value.lower() not in service.kinds
    assert both >= 1
    assert {"time", "time dontcare", "day", "integer", "boolean", "text", "text dontcare"} <= seen
    assert {dialogue.lang for dialogue in dialogues} == {"en", "zh"}
