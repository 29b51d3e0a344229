"""From parts to the four Parquet tables of a run. Every unit appears once, whatever was written twice."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
RECENT_IDS = 500_000

Mask = npt.NDArray[np.bool_]


@dataclass
class Compacted:
    """What came of it. ``damaged`` are parts that could not be read; ``superseded`` units written more than once."""

    units: int = 0
    superseded: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def compact(folder: RunFolder, gone: Iterable[str] = ()) -> Compacted:
    """Write ``traces/{dialogues,turns,calls,messages}.parquet`` from all parts of ``folder``.

    Of several rows for a unit, those of the latest part's content count: one that is not owed goes before one that is,
    then the one of the latest part. Each table is replaced whole. ``gone`` are ids of bad input that is no longer in
    the data: it gets no row.

    Raises StorageError.
    """
    result = Compacted()
    written = _Written(frozenset(gone))
    for name in folder.names("parts", parts.SUFFIX):
        try:
            written.add(name, unit_keys(folder, name))
        except StorageError:
            result.damaged.append(name)
    wins = written.decide(result)
    sinks = {table: _Sink(folder.traces / f"{table}.parquet", schema) for table, schema in TABLES.items()}
    seen = SeenIds()
    with storage_errors(folder.traces):
        folder.traces.mkdir(parents=True, exist_ok=True)
        try:
            for name, start, end in written.parts:
                tables = _once(parts.decode(folder.read(name) or b""), wins[start:end])
                tables["messages"] = _filtered(tables["messages"], seen.new(_column(tables["messages"], "message_id")))
                for table, sink in sinks.items():
                    sink.add(tables[table])
            for table, sink in sinks.items():
                sink.finish()
                folder.publish(f"traces/{table}.parquet")
        finally:
            for sink in sinks.values():
                sink.clear()
    return result


class _Written:
    """Every row of every part by the digest of its unit: 26 bytes a row, so that ten million fit."""

    def __init__(self, gone: frozenset[str]) -> None:
        self.parts: list[tuple[str, int, int]] = []
        """Name of a part, its first row, the row after its last."""
        self._gone = gone
        self._units = bytearray()
        self._contents = array("Q")
        self._outcomes = bytearray()
        self._is_gone = bytearray()

    def add(self, name: str, rows: Iterable[tuple[UnitKey, str, Outcome]]) -> None:
        """The rows of a part; none of them where it turns out to be damaged."""
        start = len(self._outcomes)
        for key, content_hash, outcome in list(rows):
            self._units += _digest(f"{key.trial}\0{key.cell}\0{key.method}\0{key.dialogue_id}", 16)
            self._contents.append(int.from_bytes(_digest(content_hash, 8)))
            self._outcomes.append(_CODES[outcome])
            self._is_gone.append(outcome is Outcome.BAD_INPUT and key.dialogue_id in self._gone)
        self.parts.append((name, start, len(self._outcomes)))

    def decide(self, result: Compacted) -> Mask:
        """Which rows count; fills in the figures."""
        n = len(self._outcomes)
        wins: Mask = np.zeros(n, dtype=np.bool_)
        if not n:
            return wins
        halves = np.frombuffer(self._units, dtype=np.uint64).reshape(n, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: rows of one unit stay in the order of their parts
        unit = halves[order]
        first = np.concatenate([[True], (unit[1:] != unit[:-1]).any(axis=1)])
        starts = np.flatnonzero(first)
        group = np.cumsum(first) - 1
        content = np.frombuffer(self._contents, dtype=np.uint64)[order]
        codes = np.frombuffer(self._outcomes, dtype=np.uint8)
        current = content == content[np.append(starts[1:], n) - 1][group]
        rank = current * (2 - _OWED[codes[order]].astype(np.int8))
        best = rank == np.maximum.reduceat(rank, starts)[group]
        chosen = order[np.maximum.reduceat(np.where(best, np.arange(n), -1), starts)]
        chosen = chosen[np.frombuffer(self._is_gone, dtype=np.uint8)[chosen] == 0]
        wins[chosen] = True
        counts = np.bincount(codes[chosen], minlength=len(_CODES))
        result.outcomes = {o.value: int(counts[code]) for o, code in _CODES.items() if counts[code]}
        result.units, result.superseded = len(chosen), n - len(starts)
        return wins


_CODES = {outcome: code for code, outcome in enumerate(Outcome)}
_OWED = np.array([outcome.owed for outcome in Outcome])


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def _once(tables: dict[str, pa.Table], wins: Mask) -> dict[str, pa.Table]:
    """The tables of a part without the units that another part decides."""
    if wins.all():
        return tables
    kept = _filtered(tables["dialogues"], wins)
    keys = set(_keys(kept))
    others = {t: _filtered(tables[t], [key in keys for key in _keys(tables[t])]) for t in ("turns", "calls")}
    return {**tables, **others, "dialogues": kept}


def _keys(table: pa.Table) -> Iterable[tuple[object, ...]]:
    return zip(*(_column(table, name) for name in ("dialogue_id", "method", "cell", "trial")), strict=True)


def _column(table: pa.Table, name: str) -> list[object]:
    values: list[object] = table.column(name).to_pylist()
    return values


def _filtered(table: pa.Table, mask: Sequence[bool] | Mask) -> pa.Table:
    return table if all(mask) else table.filter(pa.array(mask, type=pa.bool_()))


class SeenIds:
    """Message ids met so far: the latest in a set, all others as sorted arrays of 16 bytes an id."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._sorted: list[npt.NDArray[np.bytes_]] = []

    def new(self, ids: Sequence[object]) -> list[bool]:
        """For each id whether it comes up for the first time."""
        digests = [_digest(str(i), 16) for i in ids]
        old = self._old(digests)
        mask = []
        for digest, known in zip(digests, old, strict=True):
            mask.append(not known and digest not in self._recent)
            self._recent.add(digest)
        if len(self._recent) >= RECENT_IDS:
            self._settle()
        return mask

    def _old(self, digests: list[bytes]) -> list[bool]:
        found = np.zeros(len(digests), dtype=np.bool_)
        asked = np.array(digests, dtype="S16")
        for known in self._sorted:
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            found |= known[place] == asked
        return [bool(f) for f in found]

    def _settle(self) -> None:
        """Move the recent ids into an array; arrays of like size become one, so that there are few."""
        latest = np.array(sorted(self._recent), dtype="S16")
        self._recent.clear()
        while self._sorted and len(self._sorted[-1]) <= 2 * len(latest):
            latest = np.sort(np.concatenate([self._sorted.pop(), latest]))
        self._sorted.append(latest)


class _Sink:
    """One Parquet file, written in row groups of bounded size under a temporary name."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
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

    def clear(self) -> None:
        """Leave no unfinished file behind."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)
