"""The chat reader: roles, gold, ids, fields it does not know, and lines that are broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker
from dialoom.errors import BadInput
from dialoom.reader import open_dialogues
from support.records import DIALOGUES, sorted_out, write_lines


def read(*paths: Path, **options: Any) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues("chat", paths, options))


def one(path: Path, record: dict[str, Any], **options: Any) -> Dialogue:
    write_lines(path, [record])
    dialogues, bad = read(path, **options)
    assert not bad, bad
    (dialogue,) = dialogues
    return dialogue


def say(role: str, text: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"role": role, "text": text, **more}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat") / "log.jsonl"


def as_chat(dialogue: Dialogue) -> dict[str, Any]:
    """The documented form of ``dialogue``, written down apart from the reader."""
    turns = []
    for turn in dialogue.turns:
        record: dict[str, Any] = {"role": turn.speaker.value, "text": turn.text}
        if turn.frames is not None:
            record["state"] = {f.service: {k: list(v) for k, v in f.slot_values.items()} for f in turn.frames}
            record["intent"] = {f.service: f.active_intent for f in turn.frames}
            record["requested"] = {f.service: list(f.requested_slots or ()) for f in turn.frames}
        turns.append(record)
    return {"dialogue_id": dialogue.dialogue_id, "services": list(dialogue.services), "turns": turns}


@given(st.lists(DIALOGUES, min_size=1, max_size=4), st.booleans())
def test_what_is_written_is_read(file: Path, dialogues: list[Dialogue], packed: bool) -> None:
    text = "\n".join(json.dumps(as_chat(d)) for d in dialogues).encode()
    file.write_bytes(gzip.compress(text) if packed else text)
    found, bad = read(file)
    assert not bad
    assert [d.to_json(with_source=False) for d in found] == [d.to_json(with_source=False) for d in dialogues]


def test_a_plain_log_needs_nothing_but_roles_and_texts(file: Path) -> None:
    dialogue = one(
        file, {"messages": [{"role": "human", "content": "a"}, {"role": "BOT", "content": "b"}, say("用户")]}
    )
    assert dialogue.dialogue_id == "log:1"
    assert [(t.speaker.value, t.text, t.frames) for t in dialogue.turns] == [
        ("user", "a", None),
        ("system", "b", None),
        ("user", "hi", None),
    ]


def test_consecutive_messages_of_one_side_stay_apart(file: Path) -> None:
    dialogue = one(file, {"turns": [say("user", "a"), say("user", "b"), say("agent", "c"), say("agent", "d")]})
    assert [t.text for t in dialogue.turns] == ["a", "b", "c", "d"]


def test_what_belongs_to_a_dialogue_and_what_does_not(file: Path) -> None:
    record = {
        "id": 7,
        "service": "cafe",
        "language": "zh-CN",
        "knowledge": ["one", "two"],
        "channel": "web",
        "turns": [say("user", at="10:01"), say("agent", state="sent")],
    }
    dialogue = one(file, record)
    assert (dialogue.dialogue_id, dialogue.services, dialogue.language) == ("7", ("cafe",), "zh")
    assert dialogue.knowledge == "one\n\ntwo"
    assert dialogue.extra == {"channel": "web", "turn_fields": {"0": {"at": "10:01"}, "1": {"state": "sent"}}}
    assert one(file, {**record, "turn_fields": 1}).extra["turn_fields"] == 1


def test_instructions_and_tools_are_no_turns(file: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    turns = [say("system", "Be kind."), say("user", "a"), call, say("tool", "42"), say("assistant", "b")]
    dialogue = one(file, {"messages": turns})
    assert [t.text for t in dialogue.turns] == ["a", "b"]
    assert dialogue.extra["other_messages"] == [
        {"before_turn": 0, **turns[0]},
        {"before_turn": 1, **call},
        {"before_turn": 1, **turns[3]},
    ]


def test_system_is_a_side_where_nobody_is_the_assistant(file: Path) -> None:
    dialogue = one(file, {"turns": [say("system", "Welcome"), say("user", "a")]})
    assert [t.speaker for t in dialogue.turns] == [Speaker.SYSTEM, Speaker.USER]
    both = {"turns": [say("system", "Welcome"), say("assistant", "b")]}
    assert len(one(file, both).turns) == 1
    assert len(one(file, both, roles={"system": "system"}).turns) == 2


def test_roles_of_ones_own(file: Path) -> None:
    record = {"turns": [say("Patient"), say("nurse")]}
    dialogue = one(file, record, roles={"patient": "user", "Nurse": "system"})
    assert [t.speaker for t in dialogue.turns] == [Speaker.USER, Speaker.SYSTEM]
    _, (bad,) = read(file)
    assert bad.what == "unknown role 'patient'"
    assert "agent" in bad.hint
    assert "option 'roles'" in bad.hint


def test_content_parts_are_joined(file: Path) -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": "x"},
        {"type": "text", "text": "here"},
    ]
    assert one(file, {"messages": [{"role": "user", "content": parts}]}).turns[0].text == "look\n[image_url]\nhere"


def test_gold_values_become_texts_and_empty_ones_are_left_out(file: Path) -> None:
    state = {"cafe": {"people": 4, "open": True, "area": ["old town", "centre"], "name": None, "time": "", "day": []}}
    turn = say("user", state=state)
    assert one(file, {"turns": [turn]}).turns[0].frames == (
        Frame("cafe", {"people": ("4",), "open": ("True",), "area": ("old town", "centre")}),
    )
    assert one(file, {"turns": [say("user", state={})]}).turns[0].frames == ()


def test_an_intent_speaks_of_the_only_service_or_names_it(file: Path) -> None:
    frames = one(file, {"turns": [say("user", state={"cafe": {}}, intent="find")]}).turns[0].frames
    assert frames == (Frame("cafe", {}, "find"),)
    frames = one(file, {"service": "cafe", "turns": [say("user", state={}, intent="find")]}).turns[0].frames
    assert frames == (Frame("cafe", {}, "find"),)
    turn = say("user", state={"cafe": {}, "ride": {}}, intent={"ride": "order"}, requested={"ride": ["price"]})
    assert one(file, {"turns": [turn]}).turns[0].frames == (
        Frame("cafe", {}, "NONE", ()),
        Frame("ride", {}, "order", ("price",)),
    )


BROKEN: list[tuple[Any, str]] = [
    (["a"], "must be an object, but is a list"),
    ({"id": "x"}, "field 'messages' is missing"),
    ({"turns": "x"}, "field 'turns' must be a list"),
    ({"turns": []}, "the dialogue has no turns"),
    ({"turns": [say("developer")]}, "the dialogue has no turns"),
    ({"turns": ["x"]}, "a message must be an object, but is a text"),
    ({"turns": [{"text": "x"}]}, "field 'role' is missing"),
    ({"turns": [{"role": "user"}]}, "field 'text' is missing"),
    ({"turns": [say("user", 5)]}, "field 'text' must be a text, but is a number"),
    ({"turns": [say("user", ["x"])]}, "a part must be an object"),
    ({"turns": [say(5)]}, "field 'role' must be a text"),  # type: ignore[arg-type]
    ({"turns": [say("user", state=[])]}, "field 'state' must be an object"),
    ({"turns": [say("user", state={"cafe": []})]}, "state of 'cafe' must be an object"),
    ({"turns": [say("user", state={"cafe": {"area": {}}})]}, "slot 'area' must be a text, but is an object"),
    ({"turns": [say("user", intent="find")]}, "field 'intent' needs the field 'state'"),
    ({"turns": [say("user", state={}, intent="find")]}, "does not say which service"),
    ({"turns": [say("user", state={}, intent={"cafe": 1})]}, "field 'intent' must be a text"),
    ({"turns": [say("user", state={}, requested={"cafe": "x"})]}, "field 'requested' must be a list of texts"),
    ({"services": "cafe", "turns": [say("user")]}, "field 'services' must be a list of texts"),
    ({"service": ["cafe"], "turns": [say("user")]}, "field 'service' must be a text"),
    ({"knowledge": {}, "turns": [say("user")]}, "field 'knowledge' must be a text"),
    ({"language": 1, "turns": [say("user")]}, "field 'language' must be a text"),
    ({"id": {}, "turns": [say("user")]}, "the dialogue's id must be a text"),
    ({"id": "", "turns": [say("user")]}, "the dialogue's id must have 1 to 1000 characters"),
]


@pytest.mark.parametrize(("record", "what"), BROKEN)
def test_a_bad_record_costs_its_line_only(file: Path, record: Any, what: str) -> None:
    good = {"turns": [say("user")]}
    write_lines(file, [good, record, good])
    dialogues, (bad,) = read(file)
    assert [d.dialogue_id for d in dialogues] == ["log:1", "log:3"]
    assert what in bad.what
    assert bad.where.startswith(f"{file}:2 (byte ")
    assert bad.dialogue_id in ("log:2", "x")


def test_broken_lines_of_every_kind_are_rows_and_the_next_line_goes_on(file: Path) -> None:
    good = json.dumps({"turns": [say("user")]}).encode()
    lines = [
        b"\xef\xbb\xbf" + good,
        good[:-3],
        b'{"id": "mine", "turns": [',
        good.replace(b"hi", "茶".encode("gb18030")),
        b"\x00\x01",
        b"",
        good.replace(b"hi", b"\\ud83d"),
        good,
    ]
    file.write_bytes(b"\r\n".join(lines))
    dialogues, bad = read(file)
    assert [d.dialogue_id for d in dialogues] == ["log:1", "log:7", "log:8"]
    assert dialogues[1].turns[0].text == "\ud83d"
    assert [b.dialogue_id for b in bad] == ["log:2", "mine", "log:4", "log:5"]
    assert [b.what.partition(":")[0] for b in bad] == [
        "broken JSON",
        "broken JSON",
        "the text is not UTF-8",
        "broken JSON",
    ]


@pytest.mark.parametrize("text", ['[\n{"turns": []},\n{"turns": []}\n]', '{\n"turns": [\n]\n}', '[{"turns": []}]'])
def test_what_is_not_json_lines_is_said_once(file: Path, text: str) -> None:
    file.write_text(text)
    dialogues, (bad,) = read(file)
    assert not dialogues
    assert "not JSON lines" in bad.what
    assert "jq" in bad.hint


def test_files_of_one_stem_name_their_records_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
        paths.append(write_lines(tmp_path / folder / "log.jsonl", [{"turns": [say("user")]}, 5]))
    paths.append(write_lines(tmp_path / "other.ndjson", [{"turns": [say("user")]}]))
    dialogues, bad = read(*paths)
    assert [d.dialogue_id for d in dialogues] == ["monday/log:1", "tuesday/log:1", "other:1"]
    assert [b.dialogue_id for b in bad] == ["monday/log:2", "tuesday/log:2"]


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_give_rows_and_no_exception(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    dialogues, bad = read(file)
    assert dialogues or bad


KEYS = st.sampled_from(
    ["turns", "messages", "role", "text", "content", "state", "intent", "requested", "id", "service"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["user", "system", "", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON, max_size=5), st.lists(st.dictionaries(KEYS, JSON, max_size=5), max_size=3))
def test_any_record_gives_one_row(file: Path, record: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    write_lines(file, [record, {"turns": [{"role": "user", "text": "a", **turn} for turn in turns]}])
    dialogues, bad = read(file)
    assert len(dialogues) + len(bad) == 2
    for dialogue in dialogues:
        assert Dialogue.from_json(dialogue.to_json()).content_hash() == dialogue.content_hash()
