"""Parts: finished units as a worker commits them, in files that exist whole or not at all.

A part is ``DLP1``, the CRC-32 of all that follows (4 bytes), then for each table an 8-byte length and an Arrow IPC
stream. Units are never split over parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dialoom.errors import StorageError
from dialoom.traces.migrate import upgraded
from dialoom.traces.tables import TABLES, columns

MAGIC = b"DLP1"
SUFFIX = ".part"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Table name to rows."""

Batches = Mapping[str, Sequence[pa.RecordBatch]]
"""Table name to record batches."""


def batches(rows: Rows) -> dict[str, list[pa.RecordBatch]]:
    """Rows as record batches, one a table that has any. Costs processor time in the caller's thread."""
    return {name: [columns(TABLES[name], found)] for name, found in rows.items() if found}


def encode(content: Batches) -> bytes:
    """Record batches as the bytes of one part. Little of it holds the interpreter: meant for a thread."""
    out = []
    for name, schema in TABLES.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
            if content.get(name):
                writer.write_table(pa.Table.from_batches(content[name], schema).combine_chunks())
        body = sink.getvalue().to_pybytes()
        out += [len(body).to_bytes(8, "little"), body]
    everything = b"".join(out)
    return MAGIC + zlib.crc32(everything).to_bytes(4, "little") + everything


def decode(data: bytes, names: Sequence[str] = tuple(TABLES)) -> dict[str, pa.Table]:
    """The tables ``names`` of a part, in this version's form.

    Raises StorageError where the bytes are no whole, undamaged part, or one of a newer version.
    """
    if data[:4] != MAGIC:
        raise StorageError("is not a part file")
    view = memoryview(data)[8:]
    if zlib.crc32(view) != int.from_bytes(data[4:8], "little"):
        raise StorageError("is a torn or damaged part file")
    tables, position = {}, 0
    for name in TABLES:
        start = position + 8
        position = start + int.from_bytes(view[position:start], "little")
        if name in names:
            try:
                table = pa.ipc.open_stream(pa.py_buffer(view[start:position])).read_all()
            except pa.ArrowException as error:
                raise StorageError(f"is a torn or damaged part file: {error}") from error
            tables[name] = upgraded(name, table)
    return tables


def part_name(epoch: int, worker: str, number: int) -> str:
    """Name of a worker's part within the run folder; sorts by epoch."""
    return f"parts/{epoch:05d}-{worker}-{number:06d}{SUFFIX}"


LONGEST_S = 60.0
"""The longest time between two parts of a worker that comes by itself."""
PARTS_A_DOUBLING = 140
"""About so many parts a worker commits while its time of work doubles."""


def interval_s(commit_s: float, elapsed_s: float) -> float:
    """Seconds between two parts after so many seconds of work: ``commit_s`` at first, then longer, so that a long job
    leaves thousands of parts and not millions. What a death may cost is recorded in the call log all the same."""
    return max(commit_s, min(LONGEST_S, elapsed_s * 0.69 / PARTS_A_DOUBLING))
