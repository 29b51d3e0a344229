"""The schemas of the traces: what holds for every column, and how rows become columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dialoom.outcome import Outcome
from dialoom.traces.tables import DIALOGUES, KEY, MESSAGES, TABLES, VERSION, columns


def leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types at the ends of a nested type."""
    if pa.types.is_list(kind):
        yield from leaves(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(field.type)
    else:
        yield kind


@pytest.mark.parametrize("name", TABLES)
def test_text_columns_hold_more_than_two_gigabytes(name: str) -> None:
    for field in TABLES[name]:
        for kind in leaves(field.type):
            assert not pa.types.is_string(kind), field.name
            assert not pa.types.is_binary(kind), field.name


@pytest.mark.parametrize("name", TABLES)
def test_each_table_says_its_name_and_version(name: str) -> None:
    assert TABLES[name].metadata == {b"dialoom.table": name.encode(), b"dialoom.version": str(VERSION).encode()}


def test_every_unit_table_has_the_key() -> None:
    for name in ("dialogues", "turns", "calls"):
        assert [TABLES[name].field(i) for i in range(len(KEY))] == KEY


ROW = {"dialogue_id": "a", "method": "m", "cell": "", "trial": 0, "outcome": "accepted"}


def test_columns_of_rows() -> None:
    rows = [{**ROW, "dialogue_id": "a\0b", "n_turns": 3}, {**ROW, "dialogue_id": "😀", "services": ["s"]}]
    batch = columns(DIALOGUES, rows)
    assert batch.schema.equals(DIALOGUES, check_metadata=True)
    assert batch.column("dialogue_id").to_pylist() == ["a\0b", "😀"]
    assert batch.column("n_turns").to_pylist() == [3, None]
    assert batch.column("services").to_pylist() == [None, ["s"]]


def test_an_unknown_column_is_refused_in_any_row() -> None:
    with pytest.raises(KeyError, match="'n_trns'"):
        columns(DIALOGUES, [ROW, {**ROW, "n_trns": 3}])


@pytest.mark.parametrize("key", [*(f.name for f in KEY), "outcome"])
def test_a_row_without_its_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"column '{key}' is null"):
        columns(DIALOGUES, [ROW, {**ROW, key: None}])


DOC = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()


def section(title: str) -> list[str]:
    """The columns that a section of the documentation explains, in order."""
    text = DOC.split(f"\n## {title}\n")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)[1:]
    names: list[str] = []
    for cell in first_cells:
        for name in re.findall(r"`(\w+)`|\*(tokens and seconds)\*", cell):
            names += section("Tokens and seconds") if name[1] else [name[0]]
    return names


@pytest.mark.parametrize("name", ["dialogues", "turns", "calls"])
def test_the_documentation_explains_every_column_in_order(name: str) -> None:
    assert section("Key") + section(name) == TABLES[name].names


def test_the_documentation_explains_the_messages() -> None:
    assert section("messages") == MESSAGES.names


def test_the_documentation_has_the_outcomes_and_the_version() -> None:
    text = DOC.split("\n## Outcomes\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    said = {name: (scored, owed) for cell, scored, owed in rows for name in re.findall(r"`(\w+)`", cell)}
    assert list(said) == [o.value for o in Outcome]
    for outcome in Outcome:
        scored, owed = said[outcome.value]
        assert scored.startswith("yes") == outcome.scored
        assert (owed == "yes") == outcome.owed
    assert f"`dialoom.version`; now {VERSION})" in DOC
