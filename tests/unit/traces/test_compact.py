"""From parts to traces: every unit once, the right row of several, and what cannot be read is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import StorageError
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder
from dialoom.traces import compact as compact_module
from dialoom.traces.compact import SeenIds, compact
from dialoom.traces.read import dialogue_ids, messages, one_dialogue, read_table
from dialoom.traces.tables import TABLES
from dialoom.unit import UnitKey
from support.tmpfs import fill, small_disk

Unit = tuple[UnitKey, Outcome]


def rows_of(units: Sequence[Unit], mark: str = "", message_ids: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Rows of a part: a dialogue row, a turn and a call for each unit, all with ``mark``."""
    keys = [(k._asdict(), o) for k, o in units]
    return {
        "dialogues": [{**k, "outcome": o.value, "content_hash": "h", "error": mark} for k, o in keys],
        "turns": [{**k, "turn": 0, "user_text": mark} for k, _ in keys],
        "calls": [{**k, "turn": 0, "call": 0, "digest": "x", "text": mark, "message_ids": []} for k, _ in keys],
        "messages": [{"message_id": i, "role": "user", "content": i * 2} for i in message_ids],
    }


def write_part(folder: RunFolder, number: int, rows: Mapping[str, list[dict[str, Any]]]) -> str:
    name = parts.part_name(1, "w", number)
    folder.put(name, parts.encode(parts.batches(rows)))
    return name


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.make()
    return made


D, E = UnitKey("d", "m"), UnitKey("e", "m")

keys = st.builds(
    UnitKey, st.sampled_from(["a", "b\0", "😀"]), st.sampled_from("mn"), st.sampled_from(["", "c"]), st.integers(0, 1)
)
histories = st.lists(st.dictionaries(keys, st.sampled_from(Outcome), max_size=5), max_size=6)


@given(histories)
def test_every_unit_once_with_its_best_row(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[UnitKey, Outcome]]
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    for number, units in enumerate(history):
        write_part(folder, number, rows_of(list(units.items()), f"part {number}"))
    expected: dict[UnitKey, tuple[Outcome, str]] = {}
    for number, units in enumerate(history):
        for key, outcome in units.items():
            if key not in expected or expected[key][0].owed or not outcome.owed:
                expected[key] = (outcome, f"part {number}")
    result = compact(folder)
    found = {}
    for row in read_table(folder.path, "dialogues").to_pylist():
        key = UnitKey(row["dialogue_id"], row["method"], row["cell"], row["trial"])
        assert key not in found
        found[key] = (Outcome(row["outcome"]), row["error"])
    assert found == expected
    for table, column in (("turns", "user_text"), ("calls", "text")):
        marks = {
            UnitKey(r["dialogue_id"], r["method"], r["cell"], r["trial"]): r[column]
            for r in read_table(folder.path, table).to_pylist()
        }
        assert marks == {key: mark for key, (_, mark) in expected.items()}
    assert result.units == len(expected)
    assert result.superseded == sum(map(len, history)) - len(expected)
    assert sum(result.outcomes.values()) == len(expected)
    assert result.damaged == []


def test_rows_of_changed_content_make_way_even_for_owed_ones(folder: RunFolder) -> None:
    """A dialogue that changed since, and could not be done again yet, has no result."""
    write_part(folder, 1, rows_of([(D, Outcome.ACCEPTED), (E, Outcome.ACCEPTED)], "old"))
    changed = rows_of([(D, Outcome.INFRASTRUCTURE)], "new")
    changed["dialogues"][0]["content_hash"] = "other"
    write_part(folder, 2, changed)
    assert compact(folder).outcomes == {"infrastructure": 1, "accepted": 1}
    assert {r["dialogue_id"]: r["error"] for r in read_table(folder.path, "dialogues").to_pylist()} == {
        "d": "new",
        "e": "old",
    }
    assert {r["text"] for r in one_dialogue(folder.path, "d")["calls"]} == {"new"}


@given(st.lists(st.lists(st.text(max_size=2), max_size=8), max_size=30), st.integers(1, 20))
def test_ids_are_new_once_however_they_are_kept(batches: list[list[str]], recent: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_module, "RECENT_IDS", recent)
        seen, known = SeenIds(), set[str]()
        for batch in batches:
            expected = []
            for i in batch:
                expected.append(i not in known)
                known.add(i)
            assert seen.new(batch) == expected


def test_damaged_parts_are_left_out_and_named(folder: RunFolder) -> None:
    write_part(folder, 1, rows_of([(D, Outcome.ACCEPTED)]))
    torn = write_part(folder, 2, rows_of([(E, Outcome.ACCEPTED)]))
    folder.put(torn, (folder.read(torn) or b"")[:-5])
    empty = parts.part_name(1, "w", 3)
    folder.put(empty, b"")
    result = compact(folder)
    assert result.damaged == [torn, empty]
    assert result.outcomes == {"accepted": 1}
    assert dialogue_ids(folder.path) == ["d"]


def test_bad_input_that_is_no_longer_in_the_data_goes(folder: RunFolder) -> None:
    write_part(
        folder, 1, rows_of([(D, Outcome.BAD_INPUT), (E, Outcome.BAD_INPUT), (UnitKey("f", "m"), Outcome.FALLBACK)])
    )
    result = compact(folder, ["d", "f"])
    assert dialogue_ids(folder.path) == ["e", "f"]
    assert result.outcomes == {"bad_input": 1, "fallback": 1}
    assert (result.units, result.superseded) == (2, 0)
    compact(folder)
    assert dialogue_ids(folder.path) == ["d", "e", "f"]


def test_messages_are_kept_once(folder: RunFolder) -> None:
    write_part(folder, 1, rows_of([(D, Outcome.INFRASTRUCTURE)], message_ids=["x", "y"]))
    write_part(folder, 2, rows_of([(D, Outcome.ACCEPTED)], message_ids=["y", "z"]))
    compact(folder)
    assert read_table(folder.path, "messages").column("message_id").to_pylist() == ["x", "y", "z"]
    assert messages(folder.path, ["z", "x", "nope"]) == {"x": ("user", "xx"), "z": ("user", "zz")}


def test_no_parts_give_empty_tables(folder: RunFolder) -> None:
    assert compact(folder).units == 0
    for name, schema in TABLES.items():
        table = read_table(folder.path, name)
        assert table.num_rows == 0
        assert table.schema.names == schema.names


def test_many_small_row_groups(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "GROUP_ROWS", 7)
    for number in range(10):
        write_part(folder, number, rows_of([(UnitKey(f"{number}-{i}", "m"), Outcome.ACCEPTED) for i in range(4)]))
    compact(folder)
    file = pq.ParquetFile(folder.traces / "dialogues.parquet")
    assert file.metadata.num_row_groups == 5
    assert file.metadata.num_rows == 40
    assert [p.name for p in folder.traces.iterdir() if p.name.startswith(".")] == []


NASTY = "a\0b 😀 \x1b[2J \u202e \\ud800"


def test_other_tools_read_the_files(folder: RunFolder) -> None:
    rows = rows_of([(D, Outcome.ACCEPTED)], NASTY, ["x"])
    rows["turns"][0] |= {
        "state": [{"service": "s", "slot": "t", "value": NASTY}],
        "gold": [
            {
                "service": "s",
                "active_intent": None,
                "requested_slots": ["t"],
                "slot_values": [{"slot": "t", "values": ["a", NASTY]}],
            }
        ],
        "fired": [],
    }
    write_part(folder, 1, rows)
    compact(folder)
    path = folder.traces / "turns.parquet"
    (polars_row,) = pl.read_parquet(path).to_dicts()
    (arrow_row,) = pq.read_table(path).to_pylist()
    sql = duckdb.connect().execute
    (duck_row,) = sql(f"SELECT state[1].value, gold[1].slot_values[1].values FROM '{path}'").fetchall()
    assert polars_row == arrow_row
    assert arrow_row["user_text"] == NASTY
    assert duck_row == (NASTY, ["a", NASTY])
    for name in TABLES:
        counted = sql(f"SELECT count(*) FROM '{folder.traces / name}.parquet'").fetchall()
        assert counted == pl.scan_parquet(folder.traces / f"{name}.parquet").select(pl.len()).collect().rows()


def test_one_dialogue_with_all_its_units(folder: RunFolder) -> None:
    write_part(
        folder, 1, rows_of([(D, Outcome.ACCEPTED), (UnitKey("d", "n"), Outcome.FALLBACK), (E, Outcome.ACCEPTED)])
    )
    compact(folder)
    found = one_dialogue(folder.path, "d")
    assert [r["method"] for r in found["dialogues"]] == ["m", "n"]
    assert len(found["turns"]) == len(found["calls"]) == 2
    assert one_dialogue(folder.path, "nope") == {"dialogues": [], "turns": [], "calls": []}


def test_a_run_without_traces_says_what_to_do(folder: RunFolder) -> None:
    with pytest.raises(StorageError, match=r"no traces yet\. Finish it: run the same job again"):
        read_table(folder.path, "turns")


@pytest.mark.parametrize("keep", [0, 3, 100, -20])
def test_a_damaged_file_says_what_to_do(folder: RunFolder, keep: int) -> None:
    write_part(folder, 1, rows_of([(D, Outcome.ACCEPTED)]))
    compact(folder)
    path = folder.traces / "turns.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StorageError, match=r"turns\.parquet: .*damaged.*\. Run the same job again"):
        read_table(folder.path, "turns")


def test_a_full_disk_keeps_the_old_traces(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        folder = RunFolder(disk / "run")
        folder.make()
        write_part(folder, 1, rows_of([(D, Outcome.ACCEPTED)]))
        compact(folder)
        write_part(folder, 2, rows_of([(E, Outcome.ACCEPTED)], random_text(60_000)))
        ballast = fill(disk)
        with pytest.raises(StorageError, match="The disk is full: free some space"):
            compact(folder)
        assert dialogue_ids(folder.path) == ["d"]
        assert not list(folder.traces.glob(".*"))
        ballast.unlink()
        compact(folder)
        assert dialogue_ids(folder.path) == ["d", "e"]


def random_text(length: int) -> str:
    """Text that does not compress well."""
    import random

    return "".join(random.Random(0).choices([chr(c) for c in range(0x4E00, 0x9000)], k=length // 3))
