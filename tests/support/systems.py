"""Systems of a comparison, made by hand, and a small sweep's run folder with costs and latencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dialoom.scoring import Coverage
from dialoom.stats import Interval
from dialoom.systems import EFFICIENCY, System, Value
from dialoom.traces.tables import CALLS, DIALOGUES, columns
from support.traces import slot_values, turn_rows, whole_state, write_run

JGA = "joint_goal/joint_goal_accuracy"
KEY = ("hotel", "hotel-area")


def system(
    label: str,
    figures: Mapping[str, float | None],
    *,
    settings: Mapping[str, Any] | None = None,
    replayed: bool = False,
    run: str = "run",
) -> System:
    """A system whose method is ``m`` and whose cell is its label; figures of cost are lower-is-better."""
    made = {
        name: Value(v, EFFICIENCY[name][0] if name in EFFICIENCY else "fraction", name not in EFFICIENCY)
        for name, v in figures.items()
    }
    covered = Coverage(10, 10, 30, {"accepted": 10})
    return System(label, Path(run), "m", label, covered, settings or {}, made, replayed)


def with_interval(value: float, low: float, high: float) -> Value:
    """A share with its interval."""
    return Value(value, interval=Interval(low, high, 0.95))


def write_sweep(
    path: Path,
    cells: Mapping[str, Mapping[str, Any]],
    *,
    right: Mapping[str, int],
    usd: Mapping[str, float] | None = None,
    replayed: bool = False,
    dialogues: int = 12,
) -> Path:
    """A run of one method: each cell with its settings and, of four turns a dialogue, so many right in most of them.

    A cell's turns take ``right`` hundred prompt tokens and, roughly, as many tenths of a second. At 0 no call is
    answered.
    """
    rows, units = [], []
    for cell in cells:
        for d in range(dialogues):
            turns = []
            for t in range(4):
                good = t < right[cell] - (d % 3 == 0)
                state = slot_values({KEY: "north" if good else "south"})
                turns.append({
                    "gold": whole_state({KEY: "north"}), "state": state, "n_calls": 2,
                    "prompt_tokens": 100 * right[cell], "output_tokens": 10 * (right[cell] > 0),
                    "cached_tokens": 0, "reasoning_tokens": 0,
                    "latency_s": 0.1 * right[cell] + 0.001 * d, "run_s": 0.05 * right[cell], "queue_s": 0.0,
                })  # fmt: skip
            rows += turn_rows(f"d{d}", turns, cell=cell)
            cost = None if usd is None else usd[cell] * (1 + d % 2)
            units.append({
                "dialogue_id": f"d{d}", "method": "tracker", "cell": cell, "trial": 0, "outcome": "accepted",
                "prompt_tokens": 400 * (right[cell] > 0), "output_tokens": 0, "n_calls": 8,
                "run_s": float(right[cell] > 0),
                "n_replayed": int(replayed), "cost_attributed_usd": cost,
            })  # fmt: skip
    identity = {
        "cells": {
            cell: {
                "engines": {"e": {"model": "small", "revision": "1"}},
                "methods": {"tracker": {"use": "tracker", "settings": dict(fields), "roles": {"main": "e"}}},
                "prompts": {"tracker/system.txt": f"hash of {sorted(fields.items())}"},
            }
            for cell, fields in cells.items()
        }
    }
    write_run(path, rows, identity=identity)
    calls = [
        {"dialogue_id": u["dialogue_id"], "method": u["method"], "cell": u["cell"], "trial": 0, "turn": 0, "call": 0,
         "digest": "", "engine": "e", "replayed": replayed, "run_s": u["run_s"], "prompt_tokens": u["prompt_tokens"]}
        for u in units
    ]  # fmt: skip
    pq.write_table(pa.Table.from_batches([columns(DIALOGUES, units)]), path / "traces/dialogues.parquet")
    pq.write_table(pa.Table.from_batches([columns(CALLS, calls)]), path / "traces/calls.parquet")
    return path
