"""Traces read back: tables of a run, and one dialogue of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dialoom.errors import StorageError
from dialoom.runtime.folder import storage_errors
from dialoom.traces.tables import VERSION


def read_table(
    run: Path, table: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None
) -> pa.Table:
    """A table of a run's traces. Raises StorageError where it is not there or of a newer version than this code."""
    path = run / "traces" / f"{table}.parquet"
    if not path.exists():
        raise StorageError(
            "this run has no traces yet", where=str(run), hint="Finish it: run the same job again; its parts are kept."
        )
    with storage_errors(path):
        version = (pq.read_schema(path).metadata or {}).get(b"dialoom.version", b"1")
        if int(version) > VERSION:
            raise StorageError(f"written by a newer dialoom (traces version {int(version)})", where=str(path))
        return pq.read_table(path, columns=None if columns is None else list(columns), filters=where)


def dialogue_ids(run: Path) -> list[str]:
    """All dialogue ids of a run, in the order of the traces, each once."""
    ids = read_table(run, "dialogues", ["dialogue_id"]).column("dialogue_id").to_pylist()
    return list(dict.fromkeys(ids))


def one_dialogue(run: Path, dialogue_id: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of ``dialogues``, ``turns`` and ``calls`` of one dialogue, all methods; empty lists where it is not there."""
    where = ds.field("dialogue_id") == dialogue_id
    return {t: read_table(run, t, where=where).to_pylist() for t in ("dialogues", "turns", "calls")}


def messages(run: Path, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Message id to (role, content)."""
    rows = read_table(run, "messages", where=ds.field("message_id").isin(list(set(ids)))).to_pylist()
    return {r["message_id"]: (r["role"], r["content"]) for r in rows}
