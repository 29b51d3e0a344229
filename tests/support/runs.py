"""Run folders of small jobs without running them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dialoom.run import RUN_FILE, write_head
from dialoom.runtime.folder import RunFolder
from dialoom.traces.compact import compact
from support.jobs import small_plan


def finished_folder(path: Path, **fields: Any) -> RunFolder:
    """A run folder as a finished run of a small job leaves it, without units and scores."""
    plan = small_plan(path / "job", **fields)
    folder = RunFolder(path / "runs" / plan.name)
    folder.make()
    write_head(folder, plan)
    compact(folder)
    record = folder.read_json(RUN_FILE) or {}
    record |= {
        "status": "complete",
        "outcomes": {"accepted": 5, "bad_input": 1},
        "last_session": {"seconds": 1.5, "calls": 10, "odd": float("nan")},
        "data": [{"name": "data.jsonl", "bytes": 3, "sha256": "abc"}],
    }
    folder.put_json(RUN_FILE, record)
    return folder
