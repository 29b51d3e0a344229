"""Traces of older versions brought up to this one, a version at a time.

A table says its version in its schema's metadata. A change of :mod:`dialoom.traces.tables` raises ``VERSION`` there and
adds to ``STEPS`` what turns a table of the version before into one of the new version. Files are never rewritten: they
are brought up when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from dialoom.errors import StorageError
from dialoom.traces.tables import TABLES, VERSION

STEPS: Mapping[int, Mapping[str, Callable[[pa.Table], pa.Table]]] = {}
"""Version to table name to the step from that version to the next; a table without a step stays as it is."""


def version_of(schema: pa.Schema) -> int:
    """The traces version that ``schema`` was written with; 1 where it does not say. Raises StorageError."""
    written = (schema.metadata or {}).get(b"dialoom.version", b"1")
    try:
        return int(written)
    except ValueError:
        raise StorageError(f"has no valid traces version: {written!r}") from None


def check_version(schema: pa.Schema) -> int:
    """:func:`version_of`; raises StorageError where it is newer than this code can read."""
    version = version_of(schema)
    if version > VERSION:
        raise StorageError(
            f"was written by a newer dialoom (traces version {version}, this one reads up to {VERSION})",
            hint="Install the newer dialoom.",
        )
    return version


def upgraded(name: str, table: pa.Table) -> pa.Table:
    """``table``, the table ``name`` of any version up to this one, with exactly the columns of this version.

    Raises StorageError for a newer version, and for columns that are not those of the version it claims.
    """
    for version in range(check_version(table.schema), VERSION):
        step = STEPS.get(version, {}).get(name)
        table = table if step is None else step(table)
    schema = TABLES[name]
    if table.schema.equals(schema, check_metadata=True):
        return table
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, ValueError, TypeError) as error:
        raise StorageError(f"does not hold the columns of a {name} table: {error}") from error
