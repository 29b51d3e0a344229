"""Split lists: what forms they have, which records they choose in every reader, and what stays to be reported."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput, JobError
from dialoom.reader import open_dialogues
from dialoom.readers._split_list import Split
from support.records import mwz_dialogue, sgd_dialogue, sorted_out, write_json, write_lines


def chat_dialogue(**fields: Any) -> dict[str, Any]:
    return {**fields, "turns": [{"role": "user", "text": "hi"}]}


def write(reader: str, folder: Path, ids: list[str]) -> Path:
    """A file of dialogues with these ids, in the format of ``reader``."""
    if reader == "multiwoz":
        return write_json(folder / "data.json", {i: mwz_dialogue({"hotel": {}}) for i in ids})
    if reader == "chat":
        return write_lines(folder / "log.jsonl", [chat_dialogue(id=i) for i in ids])
    return write_json(folder / "dialogues_001.json", [sgd_dialogue(i) for i in ids])


def read(reader: str, path: Path, ids: Path) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues(reader, [path], {"ids": str(ids)}))


READERS = ["sgd", "multiwoz", "multiwoz22", "chat"]
FORMS: dict[str, bytes] = {
    "lines": b"d3.json\nd1\nlost.json\n",
    "windows": b"\xef\xbb\xbfd3.json\r\n\r\n  d1  \r\nlost\r\n",
    "json": b'\n["d3.json", "d1", "lost.json"]',
    "gzip": gzip.compress(b"d3\nd1\nlost"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["list.txt", "testListFile.json"])  # 2.4 publishes lines under .json
def test_a_list_chooses_and_what_it_names_in_vain_is_a_bad_input(
    tmp_path: Path, reader: str, form: str, name: str
) -> None:
    (tmp_path / name).write_bytes(FORMS[form])
    path = write(reader, tmp_path, [f"d{i}.json" for i in range(5)])
    dialogues, bad = read(reader, path, tmp_path / name)
    assert [d.dialogue_id for d in dialogues] == ["d1.json", "d3.json"]
    assert [(b.dialogue_id, b.where) for b in bad] == [("lost", str(tmp_path / name))]


IDS = st.lists(st.sampled_from([f"d{i}" for i in range(12)]), max_size=12)


@given(st.sampled_from(READERS), st.lists(st.sampled_from(range(12)), max_size=12, unique=True), IDS)
def test_wanted_and_there_is_read_wanted_and_absent_is_reported(
    tmp_path_factory: pytest.TempPathFactory, reader: str, there: list[int], wanted: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = write(reader, folder, [f"d{i}" for i in there])
    (folder / "ids.txt").write_text("\n".join([*wanted, "always"]))
    dialogues, bad = read(reader, path, folder / "ids.txt")
    present = [f"d{i}" for i in there]
    assert [d.dialogue_id for d in dialogues] == [i for i in present if i in wanted]
    lost = [b.dialogue_id for b in bad if "split list" in b.what]
    assert lost == [*(i for i in dict.fromkeys(wanted) if i not in present), "always"]


@pytest.mark.parametrize("reader", ["sgd", "multiwoz22"])
def test_a_bad_record_is_reported_if_it_is_wanted_or_has_no_id(tmp_path: Path, reader: str) -> None:
    records: list[Any] = [{**sgd_dialogue(i), "turns": []} for i in ("a", "b")]
    write_json(tmp_path / "dialogues_001.json", [*records, {"turns": [{}]}, sgd_dialogue("c")])
    (tmp_path / "ids.txt").write_text("a\nc")
    dialogues, bad = read(reader, tmp_path, tmp_path / "ids.txt")
    assert [d.dialogue_id for d in dialogues] == ["c"]
    assert [(b.dialogue_id.split("#")[0], b.what) for b in bad] == [
        ("a", "the dialogue has no turns"),
        ("dialogues_001.json", "field 'dialogue_id' is missing"),
    ]


def test_a_record_that_cannot_be_parsed_is_chosen_by_the_id_it_shows(tmp_path: Path) -> None:
    text = json.dumps([sgd_dialogue(f"d{i}") for i in range(4)], indent=1)
    for i in (1, 2):
        text = text.replace(f'"dialogue_id": "d{i}"', f'"dialogue_id": "d{i}" "oops"')
    (tmp_path / "dialogues_001.json").write_text(text)
    (tmp_path / "ids.txt").write_text("d0\nd1")
    dialogues, bad = read("sgd", tmp_path, tmp_path / "ids.txt")
    assert [d.dialogue_id for d in dialogues] == ["d0"]
    assert [b.dialogue_id for b in bad] == ["d1"]


def test_logs_without_ids_are_chosen_by_the_names_they_get(tmp_path: Path) -> None:
    write_lines(tmp_path / "calls.jsonl", [chat_dialogue(), chat_dialogue(), chat_dialogue(id="mine")])
    (tmp_path / "ids.txt").write_text("calls:2\nmine\ncalls:9")
    dialogues, bad = read("chat", tmp_path, tmp_path / "ids.txt")
    assert [d.dialogue_id for d in dialogues] == ["calls:2", "mine"]
    assert [b.dialogue_id for b in bad] == ["calls:9"]


def test_an_id_is_found_in_any_of_several_files_and_delivered_as_often_as_it_occurs(tmp_path: Path) -> None:
    write_json(tmp_path / "dialogues_001.json", [sgd_dialogue("a"), sgd_dialogue("b")])
    write_json(tmp_path / "dialogues_002.json", [sgd_dialogue("b"), sgd_dialogue("c")])
    (tmp_path / "ids.txt").write_text("b\nc")
    dialogues, bad = read("sgd", tmp_path, tmp_path / "ids.txt")
    assert ([d.dialogue_id for d in dialogues], bad) == (["b", "b", "c"], [])


WRONG: list[tuple[bytes | None, str]] = [
    (None, "cannot read the split list: No such file"),
    (b" \n\n", "the split list is empty"),
    (b"[]", "the split list is empty"),
    (b"[1]", "not a list of texts"),
    (b'{"test": ["a"]}', "not a list of texts"),
    (b"[", "cannot be read"),
    (b"a\n\xff", "cannot be read"),
    (gzip.compress(b"a\nb\n" * 99)[:-9], "cannot read the split list"),
]


@pytest.mark.parametrize(("content", "what"), WRONG)
def test_a_wrong_list_is_an_error_before_the_first_dialogue(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = write("sgd", tmp_path, ["a"])
    if content is not None:
        (tmp_path / "ids").write_bytes(content)
    with pytest.raises(JobError, match=what) as caught:
        open_dialogues("sgd", [path], {"ids": str(tmp_path / "ids")})
    assert caught.value.where == str(tmp_path / "ids")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_list_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "ids"
    path.write_bytes(data)
    try:
        split = Split(path)
    except JobError:
        return
    names = [b.dialogue_id for b in split.missing()]
    assert names
    assert all(name.strip() for name in names)
