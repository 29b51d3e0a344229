"""Traces read back: tables of a run, and one dialogue of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dialoom.errors import StorageError
from dialoom.runtime.folder import storage_errors
from dialoom.traces.migrate import check_version, upgraded
from dialoom.traces.tables import VERSION


def read_table(
    run: Path, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """A table of a run's traces, in the form of this version whatever version wrote it.

    Raises StorageError where it is not there, damaged, or of a newer version.
    """
    path = run / "traces" / f"{table}.parquet"
    if not path.exists():
        raise StorageError(
            "this run has no traces yet", where=str(run), hint="Finish it: run the same job again; its parts are kept."
        )
    with storage_errors(path), _readable(path):
        if check_version(pq.read_schema(path)) == VERSION:
            return pq.read_table(path, columns=None if columns is None else list(columns), filters=where)
        whole = upgraded(table, pq.read_table(path))
        found = whole if where is None else whole.filter(where)
        return found if columns is None else found.select(list(columns))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say which file an error is about, and what to do about a damaged one."""
    hint = "Run the same job again: the traces are made anew from its parts."
    try:
        yield
    except StorageError as error:
        raise StorageError(error.what, where=error.where or str(path), hint=error.hint or hint) from error
    except pa.ArrowException as error:
        raise StorageError(f"is damaged: {str(error).splitlines()[0]}", where=str(path), hint=hint) from error


def dialogue_ids(run: Path) -> list[str]:
    """All dialogue ids of a run, in the order of the traces, each once."""
    ids = read_table(run, "dialogues", ["dialogue_id"]).column("dialogue_id").to_pylist()
    return list(dict.fromkeys(ids))


def one_dialogue(run: Path, dialogue_id: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of ``dialogues``, ``turns`` and ``calls`` of one dialogue, all methods; empty where it is not there."""
    where = pc.field("dialogue_id") == dialogue_id
    return {t: read_table(run, t, where=where).to_pylist() for t in ("dialogues", "turns", "calls")}


def messages(run: Path, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Message id to (role, content)."""
    if not ids:  # Arrow has no type for an empty list of them
        return {}
    rows = read_table(run, "messages", where=pc.field("message_id").isin(list(set(ids)))).to_pylist()
    return {r["message_id"]: (r["role"], r["content"]) for r in rows}
