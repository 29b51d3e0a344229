"""The score input of a run, from its Parquet traces alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dialoom.errors import DialoomError, StorageError
from dialoom.metrics._build import NUMBERS, build
from dialoom.metrics._input import ScoreInput
from dialoom.metrics._schema import services_from_records
from dialoom.outcome import Outcome
from dialoom.traces.migrate import check_version, upgraded
from dialoom.traces.tables import VERSION

KEY = ("dialogue_id", "method", "cell", "trial")
TURN_COLUMNS = (
    *KEY,
    "turn",
    "user_turn",
    "outcome",
    "active_intents",
    "requested",
    "state",
    "first_proposal",
    "fired",
    "gold",
    *NUMBERS,
)


@dataclass(frozen=True)
class Units:
    """The units of one method and cell: those that are scored, and the count of all by outcome."""

    method: str
    cell: str
    scored: tuple[tuple[str, int], ...]
    by_outcome: Mapping[str, int]
    turns: pa.Table
    """Turn rows of the scored units."""
    goals: Mapping[str, tuple[str, ...]] | None = None
    """Goal domains by dialogue id, where the data has them (``extra.goal_domains``)."""


def trace_files(run_dir: Path, table: str) -> list[Path]:
    """The Parquet files of a table: ``traces/turns*.parquet`` or ``traces/turns/*.parquet``.

    Raises StorageError where there is none.
    """
    traces = run_dir / "traces"
    files = sorted([*traces.glob(f"{table}*.parquet"), *traces.glob(f"{table}/*.parquet")])
    if not files:
        hint = (
            "Is it a run folder, and has the run finished? A run that is interrupted is finished by running it again."
        )
        raise StorageError(f"no {table} table", where=str(traces), hint=hint)
    return files


def read_table(run_dir: Path, table: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a trace table, all files together, in the form of this version; an absent column is left out."""
    import pyarrow.parquet as pq

    parts = []
    for file in trace_files(run_dir, table):
        try:
            schema = pq.read_schema(file)
            if check_version(schema) == VERSION:
                known = [c for c in columns if c in schema.names]
                parts.append(pq.read_table(file, columns=known, partitioning=None))
            else:
                parts.append(upgraded(table, pq.read_table(file, partitioning=None)).select(list(columns)))
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"cannot be read: {error}", where=str(file), hint="Is the file whole?") from error
    return pa.concat_tables(parts, promote_options="default")


def read_units(run_dir: Path, columns: Sequence[str] = TURN_COLUMNS) -> list[Units]:
    """Every (method, cell) of a run, in the order of first appearance, with the named columns of its turns."""
    dialogues = read_table(run_dir, "dialogues", [*KEY, "outcome", "extra"])
    goals = _goals(dialogues)
    turns = read_table(run_dir, "turns", columns)
    groups: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for row in _rows(dialogues, [*KEY, "outcome"]):
        groups.setdefault((row[1], row[2]), []).append((row[0], row[3], row[4]))
    return [_units(method, cell, rows, turns, goals, len(groups) == 1) for (method, cell), rows in groups.items()]


def _units(
    method: str,
    cell: str,
    rows: list[tuple[str, int, str]],
    turns: pa.Table,
    goals: Mapping[str, tuple[str, ...]],
    alone: bool,
) -> Units:
    scored = tuple((dialogue_id, trial) for dialogue_id, trial, outcome in rows if Outcome(outcome).scored)
    if not alone:
        turns = turns.filter((pc.field("method") == method) & (pc.field("cell") == cell))
    if len(scored) < len(rows):
        keys = pa.table(
            {
                "dialogue_id": pa.array([d for d, _ in scored], turns.schema.field("dialogue_id").type),
                "trial": pa.array([t for _, t in scored], turns.schema.field("trial").type),
            }
        )
        turns = _semi_join(turns, keys)
    counts = Counter(outcome for _, _, outcome in rows)
    return Units(
        method, cell, scored, {o.value: counts[o.value] for o in Outcome if counts[o.value]}, turns, goals or None
    )


def _goals(dialogues: pa.Table) -> dict[str, tuple[str, ...]]:
    """Goal domains that a reader kept with the dialogue."""
    if "extra" not in dialogues.column_names:
        return {}
    found = {}
    for dialogue_id, text in _rows(dialogues, ["dialogue_id", "extra"]):
        if text and "goal_domains" in text:
            domains = orjson.loads(text).get("goal_domains")
            if isinstance(domains, list):
                found[dialogue_id] = tuple(str(d) for d in domains)
    return found


def _semi_join(turns: pa.Table, keys: pa.Table) -> pa.Table:
    """Rows of ``turns`` whose (dialogue_id, trial) is in ``keys``."""
    wanted = set(zip(keys.column(0).to_pylist(), keys.column(1).to_pylist(), strict=True))
    pairs = zip(turns.column("dialogue_id").to_pylist(), turns.column("trial").to_pylist(), strict=True)
    return turns.filter(pa.array([pair in wanted for pair in pairs], pa.bool_()))


def _rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(c).to_pylist() for c in columns), strict=True))


def recorded(run_dir: Path) -> dict[str, Any]:
    """The run's own record, ``run.json``: schema, methods and what they declare. Raises StorageError."""
    path = run_dir / "run.json"
    try:
        record = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise StorageError("no run.json", where=str(run_dir), hint="Name a run folder.") from None
    except (OSError, orjson.JSONDecodeError) as error:
        raise StorageError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(record, dict):
        raise DialoomError("run.json is not an object", where=str(path))
    return record


def read_inputs(
    run_dir: Path, columns: Sequence[str] = TURN_COLUMNS
) -> Iterator[tuple[Units, ScoreInput, frozenset[str]]]:
    """Every (method, cell) of a run with its score input and the outputs its method declares."""
    record = recorded(run_dir)
    schema = services_from_records(record.get("schema") or (), str(run_dir / "run.json"))
    seen = record.get("seen_services")
    methods = record.get("methods") or {}
    for units in read_units(run_dir, columns):
        declares = frozenset(methods.get(units.method, {}).get("declares") or ())
        data = build(
            units.turns,
            schema,
            seen=None if seen is None else frozenset(seen),
            whole_state=record.get("whole_state"),
            dialogue_ids=units.scored,
            goals=units.goals,
        )
        yield units, data, declares
