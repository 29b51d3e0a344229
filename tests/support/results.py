"""What a finished run came to, as tests ask for it."""

from __future__ import annotations

from typing import Any

from dialoom.run import RunResult
from dialoom.traces.read import read_table


def rows(result: RunResult, table: str = "dialogues") -> list[dict[str, Any]]:
    """A table of the run's traces."""
    found: list[dict[str, Any]] = read_table(result.folder.path, table).to_pylist()
    return found


def outcomes(result: RunResult) -> dict[str, str]:
    """Dialogue id to outcome, for runs of one unit a dialogue; every unit has one row."""
    found = rows(result)
    assert len(found) == len({r["dialogue_id"] for r in found})
    return {r["dialogue_id"]: r["outcome"] for r in found}


def counts(result: RunResult) -> tuple[int, int]:
    """Calls paid and calls replayed in this session."""
    return int(result.progress.counts["calls"]), int(result.progress.counts["replayed"])
