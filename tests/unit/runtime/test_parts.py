"""Parts: rows come back as they were written, and damage is noticed wherever it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dialoom.errors import StorageError
from dialoom.runtime import parts
from dialoom.text import storable
from dialoom.traces.tables import TABLES

texts = st.text().map(storable) | st.sampled_from(["", "\0", "a\0b", "😀", "\u202e", "\\ud800", "x" * 5000])


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that fit an Arrow type of the tables."""
    if kind == pa.large_string():
        return texts
    if pa.types.is_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_floating(kind):
        return st.floats(allow_nan=False)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_list(kind):
        return st.lists(st.none() | values_of(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({f.name: st.none() | values_of(f.type) for f in kind})
    return st.integers(0, 2**40)


def rows_of(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    fields = {f.name: values_of(f.type) if not f.nullable else st.none() | values_of(f.type) for f in schema}
    return st.lists(st.fixed_dictionaries(fields), max_size=3)


@given(st.fixed_dictionaries({name: rows_of(schema) for name, schema in TABLES.items()}))
def test_round_trip(rows: dict[str, list[dict[str, Any]]]) -> None:
    tables = parts.decode(parts.encode(parts.batches(rows)))
    for name, schema in TABLES.items():
        assert tables[name].schema.equals(schema, check_metadata=True)
        assert tables[name].equals(pa.Table.from_pylist(rows[name], schema))


def small_rows(text: str = "a\0😀", n: int = 3) -> dict[str, list[dict[str, Any]]]:
    key = {"method": "m", "cell": "", "trial": 0}
    return {
        "dialogues": [{**key, "dialogue_id": f"d{i}", "outcome": "accepted", "error": text} for i in range(n)],
        "turns": [{**key, "dialogue_id": "d0", "turn": 0, "state": [{"service": "s", "slot": "t", "value": text}]}],
        "calls": [{**key, "dialogue_id": "d0", "turn": 0, "call": 0, "digest": "x", "text": text}],
        "messages": [{"message_id": "x", "role": "user", "content": text}],
    }


PART = parts.encode(parts.batches(small_rows()))


def test_several_batches_make_one_part() -> None:
    one, two = parts.batches(small_rows("one")), parts.batches(small_rows("two"))
    tables = parts.decode(parts.encode({t: [*one[t], *two[t]] for t in TABLES}))
    assert tables["dialogues"].column("error").to_pylist() == ["one"] * 3 + ["two"] * 3


def test_a_part_of_nothing() -> None:
    tables = parts.decode(parts.encode({}))
    assert {name: t.num_rows for name, t in tables.items()} == dict.fromkeys(TABLES, 0)


def test_some_tables_only() -> None:
    assert list(parts.decode(PART, ["calls"])) == ["calls"]


def test_a_part_torn_at_any_byte_is_noticed() -> None:
    for end in range(len(PART)):
        with pytest.raises(StorageError, match="part file"):
            parts.decode(PART[:end])


def test_a_flipped_bit_at_any_byte_is_noticed() -> None:
    for position in range(len(PART)):
        damaged = bytearray(PART)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(StorageError, match="part file"):
            parts.decode(bytes(damaged), ["dialogues"])


@given(st.binary(max_size=200))
@example(parts.MAGIC)
@example(parts.MAGIC + b"\0" * 40)
@example(PART + b"x")
def test_bytes_that_are_no_part(data: bytes) -> None:
    with pytest.raises(StorageError, match="part file"):
        parts.decode(data)


@pytest.mark.parametrize(
    "wrong",
    [{"dialogue_id": 3}, {"trial": "x"}, {"error": "\ud800"}, {"services": 3}, {"n_turns": 2**40}, {"nonsense": 1}],
)
def test_values_that_fit_no_column_are_refused_when_they_are_batched(wrong: dict[str, Any]) -> None:
    rows = small_rows(n=1)
    rows["dialogues"][0] |= wrong
    with pytest.raises((TypeError, ValueError, KeyError, OverflowError)):
        parts.batches(rows)


def test_names_sort_by_start_and_number() -> None:
    names = [parts.part_name(e, w, n) for e in (1, 2, 10) for w in ("w0-a", "w1-b") for n in (0, 9, 10, 200)]
    assert names == sorted(names)
    assert parts.part_name(1, "w0-a", 3) == "parts/00001-w0-a-000003.part"


@given(st.floats(0.01, 60), st.floats(0, 1e7))
def test_parts_are_never_further_apart_than_a_minute_nor_nearer_than_asked(commit_s: float, elapsed_s: float) -> None:
    assert commit_s <= parts.interval_s(commit_s, elapsed_s) <= max(commit_s, parts.LONGEST_S)


def test_a_long_job_leaves_few_parts_of_a_worker() -> None:
    now_s, number = 0.0, 0
    while now_s < 12 * 3600:
        now_s += parts.interval_s(2.0, now_s)
        number += 1
    assert 1_000 < number < 1_500
    assert parts.interval_s(2.0, 300.0) == 2.0
