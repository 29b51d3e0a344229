"""A run's predictions in the formats of other evaluators: exported and scored again they give the run's scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialoom import registry
from dialoom.errors import JobError
from dialoom.predictions import Format, RunDialogue, RunTurn
from dialoom.state import SlotRef

if TYPE_CHECKING:
    import pyarrow as pa

    from dialoom.metrics._traces import Units

COLUMNS = (
    "dialogue_id",
    "method",
    "cell",
    "trial",
    "turn",
    "user_turn",
    "system_text",
    "user_text",
    "state",
    "active_intents",
    "requested",
    "gold",
)


def export_run(
    run_dir: Path,
    format: str,
    out: Path,
    *,
    method: str | None = None,
    cell: str | None = None,
    trial: int = 0,
) -> list[Path]:
    """Write the scored dialogues of one method, cell and trial into the folder ``out``; returns the files written.

    ``method`` and ``cell`` may be left out where the run has one. Raises JobError where the choice is not clear or the
    format cannot be written, StorageError where traces are missing.
    """
    from dialoom.metrics._traces import read_units, recorded

    chosen: Format = registry.find("formats", format)
    groups = read_units(run_dir, COLUMNS)
    fitting = [g for g in groups if method in (None, g.method) and cell in (None, g.cell)]
    if len(fitting) != 1:
        known = ", ".join(f"{g.method}[{g.cell}]" if g.cell else g.method for g in groups) or "none"
        raise JobError("name one method and cell of the run", where=str(run_dir), hint=f"It has: {known}.")
    record = recorded(run_dir)
    declares = (record.get("methods") or {}).get(fitting[0].method, {}).get("declares") or ()
    whole = record.get("whole_state")
    if whole is None:
        whole = not _has_intents(fitting[0].turns)
    out.mkdir(parents=True, exist_ok=True)
    return chosen.write(run_dialogues(fitting[0], trial, whole_state=whole), frozenset(declares), out)


def _has_intents(turns: pa.Table) -> bool:
    """Whether any gold frame has an intent: then gold names active services only."""
    for frames in turns.column("gold").to_pylist():
        if any(frame["active_intent"] is not None for frame in frames or ()):
            return True
    return False


def run_dialogues(units: Units, trial: int, *, whole_state: bool) -> Iterator[RunDialogue]:
    """The scored dialogues of one trial, in the order of the traces."""
    wanted = {dialogue_id for dialogue_id, number in units.scored if number == trial}
    goals = units.goals or {}
    rows = (r for batch in units.turns.to_batches() for r in batch.to_pylist())
    mine = (r for r in rows if r["trial"] == trial and r["dialogue_id"] in wanted)
    for dialogue_id, turns in groupby(mine, key=lambda r: r["dialogue_id"]):
        ordered = sorted(turns, key=lambda r: int(r["turn"]))
        yield RunDialogue(dialogue_id, _turns(ordered, whole_state=whole_state), goals.get(dialogue_id))


def _turns(rows: list[dict[str, Any]], *, whole_state: bool) -> tuple[RunTurn, ...]:
    state: Mapping[SlotRef, str] = {}
    intents: Mapping[str, str] = {}
    gold: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    found = []
    for row in rows:
        if row["state"] is not None:
            state = {SlotRef(e["service"], e["slot"]): e["value"] for e in row["state"]}
        if row["active_intents"] is not None:
            intents = {e["service"]: e["intent"] for e in row["active_intents"]}
        frames = row["gold"]
        if frames is not None:
            named = {f["service"]: {e["slot"]: tuple(e["values"]) for e in f["slot_values"]} for f in frames}
            gold = named if whole_state else {**gold, **named}
        found.append(
            RunTurn(
                turn=row["turn"],
                system_text=row["system_text"] or "",
                user_text=row["user_text"] or "",
                state=state,
                active_intents=intents,
                requested=tuple(SlotRef(e["service"], e["slot"]) for e in row["requested"] or ()),
                gold_services=None if frames is None else tuple(f["service"] for f in frames),
                gold=None if frames is None else {SlotRef(s, n): v for s, d in gold.items() for n, v in d.items()},
            )
        )
    return tuple(found)
