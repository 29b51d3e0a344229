"""Tables of older versions are brought up when they are read; newer ones are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dialoom.errors import StorageError
from dialoom.runtime import parts
from dialoom.traces import migrate, read, tables
from dialoom.traces.tables import MESSAGES, TABLES, columns
from support.traces import write_run


def messages(*rows: dict[str, str]) -> pa.Table:
    return pa.Table.from_batches([columns(MESSAGES, rows)])


def versioned(table: pa.Table, version: str) -> pa.Table:
    return table.replace_schema_metadata({"dialoom.table": "messages", "dialoom.version": version})


def test_this_version_is_left_as_it_is() -> None:
    table = messages({"message_id": "x", "role": "user", "content": "hi"})
    assert migrate.upgraded("messages", table) is table


def test_a_table_that_does_not_say_is_version_one() -> None:
    assert migrate.version_of(pa.schema([])) == 1


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(StorageError, match=r"traces version 99, this one reads up to 1\)\. Install the newer"):
        migrate.upgraded("messages", versioned(messages(), "99"))


def test_a_version_that_is_no_number() -> None:
    with pytest.raises(StorageError, match="no valid traces version: b'abc'"):
        migrate.upgraded("messages", versioned(messages(), "abc"))


def test_other_columns_are_refused() -> None:
    with pytest.raises(StorageError, match="does not hold the columns of a messages table"):
        migrate.upgraded("messages", pa.table({"message_id": ["x"]}))


@pytest.fixture
def version_three(monkeypatch: pytest.MonkeyPatch) -> pa.Schema:
    """A future: version 2 called ``role`` ``speaker``, version 3 has a column more. Gives its messages schema."""
    schema = pa.schema(
        [
            ("message_id", pa.large_string()),
            ("speaker", pa.large_string()),
            ("content", pa.large_string()),
            ("n", "i4"),
        ],
        metadata={"dialoom.table": "messages", "dialoom.version": "3"},
    )
    steps = {
        1: {"messages": lambda t: t.rename_columns(["message_id", "speaker", "content"])},
        2: {"messages": lambda t: t.append_column("n", pa.array([7] * t.num_rows, pa.int32()))},
    }
    for module in (migrate, read):
        monkeypatch.setattr(module, "VERSION", 3)
    monkeypatch.setattr(migrate, "STEPS", steps)
    monkeypatch.setitem(tables.TABLES, "messages", schema)
    return schema


def test_each_version_is_brought_up_step_by_step(version_three: pa.Schema) -> None:
    one = messages({"message_id": "x", "role": "user", "content": "hi"})
    two = versioned(one.rename_columns(["message_id", "speaker", "content"]), "2")
    for old in (one, two):
        new = migrate.upgraded("messages", old)
        assert new.schema.equals(version_three, check_metadata=True)
        assert new.to_pylist() == [{"message_id": "x", "speaker": "user", "content": "hi", "n": 7}]


def test_old_files_are_read_in_the_new_form(version_three: pa.Schema, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    rows = [{"message_id": i, "role": "user", "content": i * 2} for i in "xyz"]
    pq.write_table(messages(*rows), run / "traces" / "messages.parquet")
    found = read.read_table(run, "messages", ["n", "speaker"], ds.field("content") == "yy")
    assert found.to_pylist() == [{"n": 7, "speaker": "user"}]


def test_a_part_of_another_version_is_refused_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = TABLES["messages"].with_metadata({"dialoom.table": "messages", "dialoom.version": "9"})
    with monkeypatch.context() as patch:
        patch.setitem(tables.TABLES, "messages", newer)
        data = parts.encode({})
    with pytest.raises(StorageError, match="newer dialoom"):
        parts.decode(data)
