"""Small jobs over the tiny method and the scripted engine, written to a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dialoom.job import load_job
from dialoom.runtime.plan import Plan, make_plan

SCHEMA = {
    "name": "small",
    "services": [
        {
            "service_name": "s",
            "description": "A service.",
            "slots": [{"name": n, "description": "A slot."} for n in ("t0", "t2", "t4")],
            "intents": [{"name": "find", "description": "Find it."}],
        }
    ],
}
TINY: dict[str, Any] = {"use": "support.tiny_method:PLUGIN", "name": "tiny"}
SCRIPTED: dict[str, Any] = {"use": "scripted", "rule": "support.tiny_method:answer"}


def chat(dialogue_id: str, *said: str, **more: Any) -> dict[str, Any]:
    """A chat log record: ``said`` are the user's turns, with an answer between them."""
    turns: list[dict[str, Any]] = []
    for text in said:
        turns += [{"role": "user", "text": text}, {"role": "system", "text": "Go on."}]
    return {"dialogue_id": dialogue_id, "turns": turns[:-1], **more}


def write_data(path: Path, records: Iterable[Mapping[str, Any] | bytes]) -> Path:
    """JSON lines; bytes are written as they are."""
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def write_job(folder: Path, records: Iterable[Mapping[str, Any] | bytes] | None = None, **fields: Any) -> Path:
    """A job file with its schema and data in ``folder``; ``fields`` go over the defaults, ``run`` into them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    if records is not None or not (folder / "data.jsonl").exists():
        write_data(folder / "data.jsonl", [chat("d0", "hello", "bye")] if records is None else records)
    job = {
        "name": "small",
        "data": {"reader": "chat", "paths": "data.jsonl"},
        "schema": {"path": "schema.yaml"},
        "methods": [TINY],
        "engines": {"main": SCRIPTED},
        "tracking": {"enabled": False},
        **fields,
        "run": {"root": str(folder / "runs"), "commit_s": 0.2, "backoff_s": 0.0, **fields.get("run", {})},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def plan_of(path: Path, **overrides: Any) -> Plan:
    """The plan of a job file."""
    return make_plan(*load_job(path, overrides))


def small_plan(folder: Path, records: Iterable[Mapping[str, Any] | bytes] | None = None, **fields: Any) -> Plan:
    """:func:`write_job` and :func:`plan_of` in one."""
    return plan_of(write_job(folder, records, **fields))
