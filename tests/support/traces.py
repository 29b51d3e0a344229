"""Writes small run folders in the form the runtime leaves them: traces as Parquet, and run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dialoom.schema import Schema
from dialoom.traces.tables import DIALOGUES, TURNS, columns

State = Mapping[tuple[str, str], str]
"""(service, slot) to value."""


def slot_values(state: State) -> list[dict[str, str]]:
    """A state as the traces hold it."""
    return [{"service": s, "slot": n, "value": v} for (s, n), v in state.items()]


def frame(
    service: str,
    slots: Mapping[str, Sequence[str] | str],
    intent: str | None = None,
    requested: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A gold frame as the traces hold it."""
    forms = {s: [v] if isinstance(v, str) else list(v) for s, v in slots.items()}
    return {
        "service": service,
        "active_intent": intent,
        "requested_slots": None if requested is None else list(requested),
        "slot_values": [{"slot": s, "values": v} for s, v in forms.items()],
    }


def whole_state(state: State) -> list[dict[str, Any]]:
    """A whole gold state as MultiWOZ has it: one frame for each domain with a value."""
    services: dict[str, dict[str, str]] = {}
    for (service, slot), value in state.items():
        services.setdefault(service, {})[slot] = value
    return [frame(service, slots) for service, slots in services.items()]


def turn_rows(
    dialogue_id: str,
    turns: Sequence[Mapping[str, Any]],
    *,
    method: str = "tracker",
    cell: str = "",
    trial: int = 0,
) -> list[dict[str, Any]]:
    """Rows of the turns table; each turn gives the columns it has, keys and numbers are filled in."""
    key = {"dialogue_id": dialogue_id, "method": method, "cell": cell, "trial": trial}
    return [{**key, "turn": 2 * i, "user_turn": i, "outcome": "accepted", **turn} for i, turn in enumerate(turns)]


def turns_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the turns schema."""
    return pa.Table.from_batches([columns(TURNS, rows)])


def write_run(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    outcomes: Mapping[str, str] | None = None,
    schema: Schema | None = None,
    declares: Sequence[str] = ("state",),
    seen: Sequence[str] | None = None,
    **record: Any,
) -> Path:
    """A run folder with these turn rows. ``outcomes`` gives dialogues their outcome (default ``accepted``); dialogues
    named there that have no rows get a dialogue row only.
    """
    outcomes = outcomes or {}
    names = ("dialogue_id", "method", "cell", "trial")
    units = dict.fromkeys(tuple(r[n] for n in names) for r in rows)
    first = next(iter(units), ("", "tracker", "", 0))
    for dialogue_id in outcomes.keys() - {u[0] for u in units}:
        units[(dialogue_id, *first[1:])] = None
    dialogues = [dict(zip(names, u, strict=True)) | {"outcome": outcomes.get(u[0], "accepted")} for u in units]
    (path / "traces").mkdir(parents=True)
    pq.write_table(turns_table(rows), path / "traces" / "turns.parquet")
    pq.write_table(pa.Table.from_batches([columns(DIALOGUES, dialogues)]), path / "traces" / "dialogues.parquet")
    record |= {
        "schema": schema.to_records() if schema else [],
        "schema_name": schema.name if schema else "",
        "dontcare": True,
        "seen_services": None if seen is None else list(seen),
        "methods": {u[1]: {"declares": list(declares)} for u in units},
    }
    (path / "run.json").write_bytes(orjson.dumps(record))
    return path
