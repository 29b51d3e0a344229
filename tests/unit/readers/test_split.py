"""Cutting files into records: against json.loads as the reference, at every chunk size, and with broken input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.readers import _raw
from dialoom.readers._raw import Fault, Raw, line_records
from dialoom.readers._split import json_records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)
INDENTS = st.sampled_from([None, 0, 1, 4])


def cut(path: Path, data: bytes, *, keyed: bool = False) -> list[Raw | Fault]:
    path.write_bytes(data)
    return list(json_records(path, keyed=keyed))


def good(found: list[Raw | Fault]) -> list[Any]:
    return [json.loads(item.data) for item in found if isinstance(item, Raw)]


def faults(found: list[Raw | Fault]) -> list[Fault]:
    return [item for item in found if isinstance(item, Fault)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("split") / "data.json"


@pytest.fixture
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_raw, "CHUNK_BYTES", 5)


@given(st.lists(OBJECTS, max_size=5), INDENTS, st.booleans(), st.integers(1, 40), st.sampled_from(["", "\r\n ", "\n"]))
def test_a_list_is_cut_as_json_reads_it(
    file: Path, records: list[Any], indent: int | None, ascii_only: bool, chunk: int, after: str
) -> None:
    text = after + json.dumps(records, indent=indent, ensure_ascii=ascii_only) + after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_raw, "CHUNK_BYTES", chunk)
        found = cut(file, text.encode())
    assert not faults(found)
    assert good(found) == records
    data = file.read_bytes()
    for item in found:
        assert isinstance(item, Raw)
        assert data[item.place.byte :].startswith(item.data)
        assert item.place.line == data.count(b"\n", 0, item.place.byte) + 1


@given(st.dictionaries(st.text(max_size=8), OBJECTS, max_size=5), INDENTS, st.integers(1, 40))
def test_an_object_is_cut_as_json_reads_it(file: Path, records: dict[str, Any], indent: int | None, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_raw, "CHUNK_BYTES", chunk)
        found = cut(file, json.dumps(records, indent=indent).encode(), keyed=True)
    assert not faults(found)
    assert {item.key: json.loads(item.data) for item in found if isinstance(item, Raw)} == records


@given(
    st.lists(OBJECTS, min_size=3, max_size=6),
    st.data(),
    st.sampled_from(list(b'{}[]",:\\x1 \x00\xff')),
)
def test_one_wrong_byte_costs_one_record_where_each_has_its_line(
    file: Path, records: list[Any], data: st.DataObject, byte: int
) -> None:
    lines = [json.dumps({"n": n, **record}).encode() for n, record in enumerate(records)]
    wrong = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[wrong]) - 1))
    good_lines = {*lines[:wrong], *lines[wrong + 1 :]}
    lines[wrong] = lines[wrong][:at] + bytes([byte]) + lines[wrong][at + 1 :]
    found = cut(file, b"[\n" + b",\n".join(lines) + b"\n]")
    assert good_lines <= {item.data for item in found if isinstance(item, Raw)}


def test_a_key_that_occurs_twice_is_delivered_twice(file: Path) -> None:
    found = cut(file, b'{"a": {"n": 1}, "a": {"n": 2}}', keyed=True)
    assert [(item.key, json.loads(item.data)["n"]) for item in found if isinstance(item, Raw)] == [("a", 1), ("a", 2)]


@pytest.mark.usefixtures("tiny_chunks")
def test_a_missing_bracket_costs_its_record_and_is_placed(file: Path) -> None:
    text = json.dumps([{"n": i, "turns": [{"t": "x"}, {"t": "y"}]} for i in range(4)], indent=2)
    lines = text.split("\n")
    second = next(i for i, line in enumerate(lines) if '"n": 1' in line)
    del lines[second + 4]  # the closing brace of the first turn
    found = cut(file, "\n".join(lines).encode())
    assert [record["n"] for record in good(found)] == [0, 2, 3]
    (fault,) = faults(found)
    assert fault.place.line == second
    assert "closed first" in fault.what
    assert "goes on at line" in fault.hint


def test_a_text_that_is_not_closed_is_found_on_its_line(file: Path) -> None:
    found = cut(file, b'[\n{"n": 1},\n{"n": "two},\n{"n": 3}\n]')
    assert [record["n"] for record in good(found)] == [1, 3]
    (fault,) = faults(found)
    assert (fault.place.line, fault.what) == (3, "a text that starts here is not closed on its line (line 3, byte 18)")


def test_without_lines_the_rest_is_given_up_and_said_so(file: Path) -> None:
    found = cut(file, b'[{"n": 1}, {"n": [2}, {"n": 3}]')
    assert [record["n"] for record in good(found)] == [1]
    (fault,) = faults(found)
    assert fault.hint == "The rest of the file is not read."


@pytest.mark.parametrize("end", range(1, 30))
def test_a_file_that_is_cut_off_keeps_what_came_before(file: Path, end: int) -> None:
    whole = b'[{"n": 1}, {"n": 2}, {"n": 3}]'
    found = cut(file, whole[:end])
    assert good(found) == [{"n": i + 1} for i in range(whole[:end].count(b"}"))]
    assert len(faults(found)) == 1
    assert any(words in faults(found)[0].what for words in ("cut off", "ends inside"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b"  \n \xef", "something else"),
        (b"\xef\xbb\xbf \r\n", "the file is empty"),
        (b'{"a": 1}', "must be a list"),
        (b"hello", "something else"),
        ('[{"a": 1}]'.encode("utf-16"), "UTF-16"),
        ('[{"a": 1}]'.encode("utf-16-le"), "UTF-16"),
        ('[{"a": 1}]'.encode("utf-32"), "UTF-16 or UTF-32"),
        (b"[] []", "after the closing bracket"),
        (b"[,]", "a comma too many"),
        (b"[}", "no record starts here"),
        (b'["a', "ends inside"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(file: Path, data: bytes, what: str) -> None:
    (fault,) = faults(cut(file, data))
    assert what in fault.what


def test_what_is_no_record_is_still_delivered(file: Path) -> None:
    found = cut(file, b'[1, "two", {"n": 3}, null]')
    assert not faults(found)
    assert good(found) == [1, "two", {"n": 3}, None]


def test_commas_do_not_decide_over_records(file: Path) -> None:
    found = cut(file, b'\xef\xbb\xbf[{"n": 1} {"n": 2},, {"n": 3},]')
    assert [record["n"] for record in good(found)] == [1, 2, 3]
    assert [fault.what.split()[1] for fault in faults(found)] == ["comma", "comma"]


def test_a_bad_key_costs_its_record(file: Path) -> None:
    found = cut(file, b'{\n "a": {},\n b: {},\n "c": {}\n}', keyed=True)
    assert [item.key for item in found if isinstance(item, Raw)] == ["a", "c"]
    assert "id and a colon" in faults(found)[0].what


def test_a_record_without_end_does_not_fill_the_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dialoom.readers import _split

    monkeypatch.setattr(_split, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(_raw, "CHUNK_BYTES", 200)
    found = cut(file, b'[\n{"n": 1},\n{"x": [' + b"1," * 4000 + b'\n{"n": 3}\n]')
    assert [record["n"] for record in good(found)] == [1, 3]
    (fault,) = faults(found)
    assert "does not end within 1000 bytes" in fault.what
    assert len(fault.data) < 3000


@pytest.mark.usefixtures("tiny_chunks")
def test_gzip_is_told_by_its_bytes_and_a_torn_one_keeps_its_head(tmp_path: Path) -> None:
    text = json.dumps([{"n": i, "x": f"{i * i} {i}"} for i in range(2000)]).encode()
    packed = gzip.compress(text)
    assert len(good(cut(tmp_path / "a.json", packed))) == 2000
    found = cut(tmp_path / "b.json.gz", packed[: len(packed) // 2])
    assert 100 < len(good(found)) < 2000
    (fault,) = faults(found)
    assert "cannot read on" in fault.what
    found = cut(tmp_path / "c.json.gz", packed[:-8] + b"\0" * 8)
    assert len(good(found)) == 2000
    assert "CRC" in faults(found)[0].what


def test_a_file_that_cannot_be_opened_is_a_fault(tmp_path: Path) -> None:
    for found in (list(json_records(tmp_path, keyed=False)), list(line_records(tmp_path))):
        (fault,) = found
        assert isinstance(fault, Fault)
        assert "cannot open" in fault.what


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), max_size=6))
def test_lines_are_those_that_are_not_blank(file: Path, lines: list[str]) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    found = list(line_records(file))
    wanted = [(i, line.encode().strip(b" \t")) for i, line in enumerate(lines, 1)]
    wanted = [(i, line) for i, line in wanted if line]
    if wanted and lines[0][:2] in ("{\x00", "[\x00", "\x00{", "\x00["):
        return
    if not wanted:
        assert [type(item) for item in found] == [Fault]
    else:
        assert [(item.place.line, item.data) for item in found] == wanted


def test_a_line_too_long_and_a_torn_gzip_end_the_lines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_raw, "MAX_RECORD_BYTES", 100)
    file.write_bytes(b"{}\n" + b"x" * 200 + b"\n{}\n")
    first, second = line_records(file)
    assert isinstance(first, Raw)
    assert isinstance(second, Fault)
    assert "longer than 100 bytes" in second.what
    monkeypatch.undo()
    file.write_bytes(gzip.compress(b"{}\n" * 1000)[:-10])
    *_, last = line_records(file)
    assert isinstance(last, Fault)
    assert "cannot read on" in last.what
    file.write_bytes('{"a": 1}\n'.encode("utf-16"))
    (only,) = line_records(file)
    assert isinstance(only, Fault)
    assert "UTF-16" in only.what
