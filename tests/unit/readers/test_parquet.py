"""The Parquet reader: the same logs as the chat reader reads, nulls, odd types, damage, and flat memory."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker
from dialoom.errors import BadInput, JobError
from dialoom.reader import expand_paths, open_dialogues
from support.records import sorted_out, write_lines

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("text", pa.string())]))


def read(path: Path, reader: str = "parquet", **options: Any) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues(reader, [path], options))


def write(path: Path, columns: dict[str, pa.Array], **settings: Any) -> Path:
    pq.write_table(pa.table(columns), path, **settings)
    return path


def turns(*dialogues: Any, kind: pa.DataType = MESSAGES) -> pa.Array:
    return pa.array(dialogues, kind)


HI = [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "hello"}]


def test_a_row_is_a_dialogue(tmp_path: Path) -> None:
    path = write(
        tmp_path / "calls.parquet",
        {
            "turns": turns(HI, HI[:1]),
            "id": pa.array([7, None]),
            "services": pa.array([["cafe", "taxi"], None]),
            "language": pa.array(["zh-CN", None]),
            "knowledge": pa.array(["a page", None]),
            "scenario": pa.array([{"n": 1, "note": None}, None]),
            "at": pa.array([datetime.datetime(2024, 5, 1, 12, 30), None]),
        },
    )
    (first, second), bad = read(path)
    assert not bad
    assert (first.dialogue_id, first.services, first.language) == ("7", ("cafe", "taxi"), "zh")
    assert [(t.speaker, t.text, t.frames) for t in first.turns] == [
        (Speaker.USER, "hi", None),
        (Speaker.SYSTEM, "hello", None),
    ]
    assert (first.knowledge, first.extra) == ("a page", {"scenario": {"n": 1}, "at": "2024-05-01T12:30:00"})
    assert first.source == f"{path} row 1"
    assert (second.dialogue_id, second.services, second.knowledge, second.extra) == ("calls:2", (), None, {})


def test_messages_and_content_will_do(tmp_path: Path) -> None:
    kind = pa.large_list(pa.struct([("content", pa.large_string()), ("role", pa.dictionary(pa.int8(), pa.string()))]))
    rows = [[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}, {"role": "assistant"}]]
    ((dialogue,), bad) = read(write(tmp_path / "a.pq", {"messages": turns(*rows, kind=kind)}))
    assert not bad
    assert [t.text for t in dialogue.turns] == ["hi"]
    assert dialogue.extra["other_messages"] == [
        {"before_turn": 0, "content": "Be kind.", "role": "system"},
        {"before_turn": 1, "role": "assistant", "text": None},
    ]


def test_gold_as_maps_and_as_structs(tmp_path: Path) -> None:
    by_slot = pa.map_(pa.string(), pa.list_(pa.string()))
    as_maps = [("role", pa.string()), ("text", pa.string()), ("state", pa.map_(pa.string(), by_slot))]
    slots = pa.struct([("area", pa.string()), ("seats", pa.int32())])
    as_structs = [*as_maps[:2], ("state", pa.struct([("cafe", slots), ("taxi", slots)])), ("intent", pa.string())]
    maps = [{"role": "user", "text": "a", "state": [("cafe", [("area", ["north", "up north"]), ("time", None)])]}]
    structs = [{"role": "user", "text": "a", "state": {"cafe": {"area": "north", "seats": 4}, "taxi": None}}]
    bare = [{"role": "user", "text": "a", "state": None}, {"role": "user", "text": "b", "state": {}}]
    for fields, rows, wanted in (
        (as_maps, maps, [(Frame("cafe", {"area": ("north", "up north")}),)]),
        (as_structs, structs, [(Frame("cafe", {"area": ("north",), "seats": ("4",)}),)]),
        (as_maps, bare, [None, ()]),
        (as_structs, bare, [None, ()]),
    ):
        kind = pa.list_(pa.struct(fields))
        ((dialogue,), bad) = read(write(tmp_path / "a.parquet", {"turns": turns(rows, kind=kind)}))
        assert not bad
        assert [turn.frames for turn in dialogue.turns] == wanted


def test_roles_and_split_lists_are_options(tmp_path: Path) -> None:
    rows = [[{"role": "patient", "text": "hi"}]] * 3
    path = write(tmp_path / "a.parquet", {"turns": turns(*rows), "id": pa.array(["x", "y", "z"])})
    (tmp_path / "ids.txt").write_text("y\nw")
    dialogues, bad = read(path, ids=str(tmp_path / "ids.txt"), roles={"patient": "user"})
    assert ([d.dialogue_id for d in dialogues], [b.dialogue_id for b in bad]) == (["y"], ["w"])


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.pq", "c.jsonl"):
        write(tmp_path / name, {"turns": turns(HI)})
    assert [p.name for p in expand_paths("parquet", [tmp_path])] == ["a.pq", "b.parquet"]
    with pytest.raises(JobError, match="has no option 'columns'"):
        read(tmp_path, columns="x")


BAD_ROWS: list[tuple[Any, str]] = [
    (None, "field 'messages' is missing"),
    ([], "the dialogue has no turns"),
    ([None], "a message must be an object, but is null"),
    ([{"text": "hi"}], "field 'role' is missing"),
    ([{"role": "nurse", "text": "hi"}], "unknown role 'nurse'"),
    ([{"role": "user"}], "the dialogue has no turns"),
]


@pytest.mark.parametrize(("row", "what"), BAD_ROWS)
def test_a_bad_row_costs_itself_only(tmp_path: Path, row: Any, what: str) -> None:
    path = write(tmp_path / "a.parquet", {"turns": turns(HI, row, HI), "id": pa.array(["a", "b", "c"])})
    dialogues, (bad,) = read(path)
    assert [d.dialogue_id for d in dialogues] == ["a", "c"]
    assert (bad.dialogue_id, bad.what) == ("b", what)
    assert bad.where.startswith(f"{path} row 2")
    assert bad.content_hash


def test_a_message_without_any_text_column_is_a_mistake(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("role", pa.string())]))
    dialogues, (bad,) = read(write(tmp_path / "a.parquet", {"turns": turns([{"role": "user"}], kind=kind)}))
    assert (dialogues, bad.what, bad.dialogue_id) == ([], "field 'text' is missing", "a:1")


BAD_TABLES: list[tuple[dict[str, pa.Array], str, str]] = [
    ({"text": pa.array(["hi"])}, "no column 'turns' or 'messages'", "Columns there: text."),
    ({"turns": pa.array(["[]"])}, "column 'turns' is of type string", "It must be a list of structs"),
    ({"turns": pa.array([["hi"]])}, "column 'turns' is of type list<", "It must be a list of structs"),
    ({"turns": turns()}, "the file is empty", ""),
]


@pytest.mark.parametrize(("columns", "what", "hint"), BAD_TABLES)
def test_a_table_of_another_form_is_one_fault(tmp_path: Path, columns: Any, what: str, hint: str) -> None:
    dialogues, (bad,) = read(write(tmp_path / "a.parquet", columns))
    assert dialogues == []
    assert what in bad.what
    assert bad.hint.startswith(hint)
    assert bad.where == f"{tmp_path / 'a.parquet'} row 1"


def test_odd_types_become_texts_in_extra(tmp_path: Path) -> None:
    odd = {
        "price": pa.array([decimal.Decimal("1.50")]),
        "raw": pa.array([b"caf\xc3\xa9 \xff"]),
        "wait": pa.array([datetime.timedelta(minutes=2)]),
        "big": pa.array([2**64 - 1], pa.uint64()),
        "by_n": pa.array([[(1, "one"), (2, None)]], pa.map_(pa.int32(), pa.string())),
        "by_pair": pa.array([[({"a": 1}, "one")]], pa.map_(pa.struct([("a", pa.int8())]), pa.string())),
        "nested": pa.array([[{"x": None, "y": [None, {"z": 1}]}]]),
        "nan": pa.array([float("nan")]),
    }
    ((dialogue,), bad) = read(write(tmp_path / "a.parquet", {"turns": turns(HI), **odd}))
    assert not bad
    assert dialogue.extra == {
        "price": "1.50",
        "raw": "café \\xff",
        "wait": "0:02:00",
        "big": 2**64 - 1,
        "by_n": {"1": "one"},
        "by_pair": [[{"a": 1}, "one"]],
        "nested": [{"y": [None, {"z": 1}]}],
        "nan": None,
    }
    assert dialogue.content_hash()


def test_text_that_is_not_utf_8_costs_its_row(tmp_path: Path) -> None:
    offsets, data = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")
    notes = pa.Array.from_buffers(pa.string(), 3, [None, offsets, data])
    path = write(tmp_path / "a.parquet", {"turns": turns(HI, HI, HI), "note": notes})
    dialogues, (bad,) = read(path)
    assert [d.extra["note"] for d in dialogues] == ["a", "c"]
    assert bad.what.startswith("the text is not UTF-8")
    assert (bad.dialogue_id, bad.where) == ("a:2", f"{path} row 2")


def many(n: int) -> pa.Array:
    made = random.Random(3)
    return turns(*([{"role": "user", "text": f"{i} {made.random()}"}] for i in range(n)))


def test_a_damaged_row_group_costs_itself_and_the_numbers_go_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"turns": many(1000)}, row_group_size=100, write_page_checksum=True)
    spans = []
    meta = pq.ParquetFile(path).metadata
    for group in range(meta.num_row_groups):
        columns = [meta.row_group(group).column(c) for c in range(meta.row_group(group).num_columns)]
        start = min(c.dictionary_page_offset or c.data_page_offset for c in columns)
        spans.append((start, sum(c.total_compressed_size for c in columns)))
    data = bytearray(path.read_bytes())
    for group in (3, 9):
        start, size = spans[group]
        for at in range(start + size // 2, start + size - 10):
            data[at] ^= 0xFF
    path.write_bytes(data)
    dialogues, bad = read(path)
    ids = [int(d.dialogue_id.removeprefix("a:")) for d in dialogues]
    assert ids == [i for i in range(1, 1001) if not 301 <= i <= 400 and not i > 900]
    assert [d.turns[0].text.split()[0] for d in dialogues] == [str(i - 1) for i in ids]
    assert [b.hint for b in bad] == ["Reading goes on at row 401.", "The rest of the file is not read."]
    assert [b.where for b in bad] == [f"{path} row 301", f"{path} row 901"]


@given(st.data())
def test_any_damage_gives_rows_and_no_exception(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    whole = bytearray(write(path, {"turns": many(40)}, row_group_size=10).read_bytes())
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for _ in range(data.draw(st.integers(0, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    dialogues, bad = read(path)
    assert dialogues or bad


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SAID = st.fixed_dictionaries({"role": st.sampled_from(["user", "bot", "?"]), "text": WORDS})
LOGS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | WORDS,
            "turns": st.none()
            | st.lists(
                st.fixed_dictionaries({"role": st.sampled_from(["user", "bot", "?"]), "text": WORDS}), max_size=3
            ),
            "services": st.none() | st.lists(WORDS, max_size=2),
            "note": st.none() | WORDS,
        }
    ),
    min_size=1,
    max_size=5,
)


@given(LOGS)
def test_a_table_is_read_as_the_same_records_in_lines(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    columns = {name: pa.array([r[name] for r in records]) for name in ("id", "services", "note")}
    rows = write(folder / "same.parquet", {"turns": turns(*(r["turns"] for r in records)), **columns})
    present = [{k: v for k, v in r.items() if v is not None} for r in records]
    lines = write_lines(folder / "same.jsonl", present)
    from_rows = [*open_dialogues("parquet", [rows])]
    from_lines = [*open_dialogues("chat", [lines])]
    assert list(map(_without_place, from_rows)) == list(map(_without_place, from_lines))


def _without_place(item: Dialogue | BadInput) -> Any:
    if isinstance(item, Dialogue):
        return json.loads(item.to_json(with_source=False))
    return item.dialogue_id, item.what


def test_memory_stays_flat_however_large_the_file(tmp_path: Path) -> None:
    made = random.Random(5)
    texts = ["".join(made.choices("abcdefghijklmnop ", k=3000)) for _ in range(200)]
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("turns", MESSAGES)])) as out:
        for _ in range(20):
            rows = [[{"role": "user", "text": made.choice(texts) + str(made.random())}] for _ in range(1000)]
            out.write_table(pa.table({"turns": turns(*rows)}))
    held = pa.total_allocated_bytes()
    most = count = 0
    for dialogue in open_dialogues("parquet", [tmp_path / "a.parquet"]):
        assert isinstance(dialogue, Dialogue)
        count += 1
        most = max(most, pa.total_allocated_bytes() - held)
    assert count == 20_000
    assert (tmp_path / "a.parquet").stat().st_size > 20_000_000
    assert most < 12_000_000
