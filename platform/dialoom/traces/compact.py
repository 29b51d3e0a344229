"""From parts to the four Parquet tables of a run. Every unit appears once, whatever was written twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dialoom.errors import StorageError
from dialoom.faults import fault_point
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder, storage_errors
from dialoom.runtime.index import unit_keys
from dialoom.traces.tables import TABLES
from dialoom.unit import UnitKey

GROUP_ROWS = 20_000
GROUP_BYTES = 64 << 20


@dataclass
class Compacted:
    """What came of it. ``damaged`` are parts that could not be read; ``superseded`` units written more than once."""

    units: int = 0
    superseded: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def compact(folder: RunFolder, gone: Iterable[str] = ()) -> Compacted:
    """Write ``traces/{dialogues,turns,calls,messages}.parquet`` from all parts of ``folder``.

    Of several rows for a unit, one that is not owed goes before one that is, then the one of the latest part. Each
    table is replaced whole. ``gone`` are ids of bad input that is no longer in the data: it gets no row.

    Raises StorageError.
    """
    result = Compacted()
    names = folder.names("parts", parts.SUFFIX)
    winners = _winners(folder, names, result, frozenset(gone))
    sinks = {table: _Sink(folder.traces / f"{table}.parquet", schema) for table, schema in TABLES.items()}
    seen: set[str] = set()
    with storage_errors(folder.traces):
        folder.traces.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names):
            if name in result.damaged:
                continue
            tables = parts.decode(folder.read(name) or b"")
            for table in ("dialogues", "turns", "calls"):
                sinks[table].add(_kept(tables[table], number, winners))
            sinks["messages"].add(_new_messages(tables["messages"], seen))
        for table, sink in sinks.items():
            sink.finish()
            folder.publish(f"traces/{table}.parquet")
    result.units = len(winners)
    return result


def _winners(folder: RunFolder, names: list[str], result: Compacted, gone: frozenset[str]) -> dict[UnitKey, int]:
    winners: dict[UnitKey, tuple[bool, int]] = {}
    outcomes: dict[UnitKey, Outcome] = {}
    for number, name in enumerate(names):
        try:
            for key, _, outcome in unit_keys(folder, name):
                rank = (not outcome.owed, number)
                if key in winners:
                    result.superseded += 1
                if key not in winners or rank >= winners[key]:
                    winners[key] = rank
                    outcomes[key] = outcome
        except StorageError:
            result.damaged.append(name)
    for key in [k for k, o in outcomes.items() if o is Outcome.BAD_INPUT and k.dialogue_id in gone]:
        del winners[key], outcomes[key]
    for outcome in outcomes.values():
        result.outcomes[outcome.value] = result.outcomes.get(outcome.value, 0) + 1
    return {key: number for key, (_, number) in winners.items()}


def _kept(table: pa.Table, number: int, winners: Mapping[UnitKey, int]) -> pa.Table:
    """The rows whose unit is decided by part ``number``."""
    columns = [table.column(n).to_pylist() for n in ("dialogue_id", "method", "cell", "trial")]
    mask = [winners.get(UnitKey(*key)) == number for key in zip(*columns, strict=True)]
    return table if all(mask) else table.filter(pa.array(mask, type=pa.bool_()))


def _new_messages(table: pa.Table, seen: set[str]) -> pa.Table:
    ids = table.column("message_id").to_pylist()
    mask = []
    for message_id in ids:
        mask.append(message_id not in seen)
        seen.add(message_id)
    return table if all(mask) else table.filter(pa.array(mask, type=pa.bool_()))


class _Sink:
    """One Parquet file, written in row groups of bounded size under a temporary name."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
        whole = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        self._writer.write_table(whole, row_group_size=max(whole.num_rows, 1))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        if self._waiting or self._writer is None:
            self._write()
        assert self._writer is not None
        self._writer.close()
        fault_point("traces", self._path.stem)
        self._temporary.replace(self._path)
