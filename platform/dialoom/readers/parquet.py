"""Reader ``parquet``: logs as a table, one dialogue a row, in the field names of the reader ``chat``.

The column ``turns`` (or ``messages``) is a list of structs with ``role`` and ``text`` (or ``content``); ``state``,
``intent`` and ``requested`` may stand beside them, as structs or maps. A null is a field that is absent, as
every row has all fields of a struct. Columns that the format does not know are kept in ``extra``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput, DataError
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import CHUNK_BYTES, REST_LOST, Fault, Place, Raw
from dialoom.readers.chat import TEXT_FIELDS, ChatConfig, logs

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 64
TURN_COLUMNS = ("turns", "messages")

_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Row(Place):
    """A row of a table, counted from 1 in ``line``."""

    def __str__(self) -> str:
        return f"{self.path} row {self.line}"


class ParquetReader:
    """Streams row group by row group; a group that cannot be read costs itself only."""

    name = "parquet"
    config: type[ReaderConfig] = ChatConfig

    def wants(self, file_name: str) -> bool:
        return file_name.endswith((".parquet", ".pq"))

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        return logs(paths, config, _records)


def _records(path: Path) -> Iterator[Raw | Fault]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, buffer_size=CHUNK_BYTES, pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        yield Fault(Row(path, 1, 0), f"the file cannot be read as Parquet: {error}")
        return
    with file:
        try:
            convert = _row_converter(file.schema_arrow)
        except DataError as error:
            yield Fault(Row(path, 1, 0), error.what, error.hint)
            return
        done = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield from _group(file, group, path, range(done + 1, done + rows + 1), convert)
            done += rows
    if not done:
        yield Fault(Row(path, 1, 0), "the file is empty")


def _group(file: pq.ParquetFile, group: int, path: Path, rows: range, convert: _Convert) -> Iterator[Raw | Fault]:
    """The rows of a row group, which are numbered by ``rows``."""
    import pyarrow as pa

    row = rows.start
    try:
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group]):
            for item in _batch(batch, path, row, convert):
                yield item
                row += 1
    except (pa.ArrowException, OSError) as error:
        last = file.num_row_groups == group + 1
        hint = REST_LOST if last else f"Reading goes on at row {rows.stop}."
        yield Fault(Row(path, row, 0), f"cannot read on, up to row {rows.stop - 1}: {error}", hint)


def _batch(batch: pa.RecordBatch, path: Path, row: int, convert: _Convert) -> Iterator[Raw | Fault]:
    """One item a row, the first numbered ``row``."""
    try:
        records: list[Any] = batch.to_pylist()
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            yield Fault(Row(path, row, 0), f"the text is not UTF-8: {error}", "Write text columns as UTF-8.")
            return
        for i in range(batch.num_rows):
            yield from _batch(batch.slice(i, 1), path, row + i, convert)
        return
    for i, record in enumerate(records):
        data = orjson.dumps(convert(record), default=_as_text, option=orjson.OPT_NON_STR_KEYS)
        yield Raw(Row(path, row + i, 0), data)


def _as_text(value: Any) -> str:
    """What JSON has no form for (decimals, durations, bytes)."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _row_converter(schema: pa.Schema) -> _Convert:
    """How a row becomes a record of the chat format. Raises DataError where the table has no turns."""
    import pyarrow as pa

    columns = [name for name in TURN_COLUMNS if name in schema.names]
    if not columns:
        hint = f"Columns there: {', '.join(schema.names[:12]) or 'none'}."
        raise DataError("the table has no column 'turns' or 'messages'", hint=hint)
    silent = []
    for name in columns:
        kind = schema.field(name).type
        if not (_is_list(kind) and pa.types.is_struct(kind.value_type)):
            hint = "It must be a list of structs with the fields 'role' and 'text'."
            raise DataError(f"column '{name}' is of type {kind}", hint=hint)
        if any(field.name in TEXT_FIELDS for field in kind.value_type):
            silent.append(name)
    plain = _struct(schema)

    def convert(row: dict[str, Any]) -> Any:
        record = plain(row)
        for name in silent:
            for message in record.get(name, ()):
                # A null text is a message that says nothing; a text that is absent is a mistake.
                if message is not None and message.keys().isdisjoint(TEXT_FIELDS):
                    message["text"] = None
        return record

    return convert


def _struct(fields: pa.StructType | pa.Schema) -> _Convert:
    """Objects without their nulls."""
    converts = {field.name: _converter(field.type) for field in fields}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: member if (inner := converts[name]) is None else inner(member)
            for name, member in value.items()
            if member is not None
        }

    return convert


def _converter(kind: pa.DataType) -> _Convert | None:
    """What makes a value of type ``kind``, not null, a JSON value; None where it is one."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind) and not pa.types.is_nested(kind.key_type):
        item = _converter(kind.item_type)
        return lambda pairs: {k: v if item is None or v is None else item(v) for k, v in pairs if v is not None}
    if _is_list(kind):
        inner = _converter(kind.value_type)
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    return None


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


PLUGIN = ParquetReader()
