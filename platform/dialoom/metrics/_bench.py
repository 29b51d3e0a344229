"""How long scores take: ``python -m dialoom.metrics._bench [--turns N] [--definitions a,b]``.

Makes a run folder of N synthetic MultiWOZ-like turns in dialogues of eight (whole states that grow, predictions with
errors), then times reading it and every definition by itself, intervals included.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dialoom.metric import Ints
from dialoom.metrics._columns import spread
from dialoom.metrics._input import ScoreInput
from dialoom.metrics._traces import read_inputs
from dialoom.scoring import definitions_for, score_input
from dialoom.traces.tables import DIALOGUES, TURNS

SLOTS = {
    "hotel": "pricerange type parking area stars internet name bookstay bookday bookpeople",
    "train": "destination day departure arriveby bookpeople leaveat",
    "restaurant": "food pricerange area name booktime bookday bookpeople",
    "attraction": "area name type",
    "taxi": "leaveat destination departure arriveby",
}
TURNS_A_DIALOGUE = 8
VALUES = 400


def synthetic(n_turns: int, seed: int = 0) -> pa.Table:
    """A turns table: every turn adds a slot or changes one; predictions miss, add and mistake some."""
    rng = np.random.default_rng(seed)
    names = [(d, f"{d}-{s}") for d, slots in SLOTS.items() for s in slots.split()]
    n_dialogues = -(-n_turns // TURNS_A_DIALOGUE)
    picked = np.argsort(rng.random((n_dialogues, len(names))), axis=1)[:, :TURNS_A_DIALOGUE]
    value = rng.zipf(1.3, (n_dialogues, TURNS_A_DIALOGUE)) % VALUES
    turn = np.tile(np.arange(TURNS_A_DIALOGUE), n_dialogues)[:n_turns]
    dialogue = np.repeat(np.arange(n_dialogues), TURNS_A_DIALOGUE)[:n_turns]
    lengths = turn + 1
    at = spread(dialogue * TURNS_A_DIALOGUE, lengths)
    slot, filled = picked.ravel()[at], value.ravel()[at]
    # Gold frames need a service's slots side by side.
    owner = np.repeat(np.arange(n_turns), lengths)
    order = np.lexsort((slot, owner))
    slot, filled = slot[order], filled[order]
    chance = rng.random(len(slot))
    kept = chance > 0.06
    guess = np.where(chance < 0.12, (filled + 1) % VALUES, filled)
    texts = np.array([f"value {i}" if i % 9 else "none" for i in range(VALUES)], dtype=object)
    columns: dict[str, Any] = {
        "dialogue_id": pa.array([f"d{i:07d}" for i in dialogue.tolist()], pa.large_string()),
        "turn": pa.array(2 * turn, pa.int32()),
        "user_turn": pa.array(turn, pa.int32()),
        "state": _states(names, texts, owner[kept], slot[kept], guess[kept], n_turns),
        "gold": _gold(names, texts, owner, slot, filled, n_turns),
    }
    constant = {"method": "bench", "cell": "", "outcome": "accepted"}
    columns |= {k: pa.array([v] * n_turns, pa.large_string()) for k, v in constant.items()}
    columns |= {"trial": pa.array(np.zeros(n_turns), pa.int32()), "n_calls": pa.array(1 + turn % 3, pa.int32())}
    schema = pa.schema([f for f in TURNS if f.name in columns])
    return pa.table([columns[f.name] for f in schema], schema=schema)


def _texts(words: list[str], codes: Ints) -> pa.Array:
    return pa.array(words, pa.large_string()).take(pa.array(codes))


def _offsets(owner: Ints, n: int) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]), pa.int32())


def _states(names: list[tuple[str, str]], texts: Any, owner: Ints, slot: Ints, value: Ints, n: int) -> pa.Array:
    fields = [
        _texts([s for s, _ in names], slot),
        _texts([s for _, s in names], slot),
        _texts(list(texts), value),
    ]
    entries = pa.StructArray.from_arrays(fields, ["service", "slot", "value"])
    return pa.ListArray.from_arrays(_offsets(owner, n), entries)


def _gold(names: list[tuple[str, str]], texts: Any, owner: Ints, slot: Ints, value: Ints, n: int) -> pa.Array:
    services = list(SLOTS)
    service = np.array([services.index(s) for s, _ in names])[slot]
    frame_key, frame = np.unique(owner * len(services) + service, return_inverse=True)
    values = pa.ListArray.from_arrays(pa.array(np.arange(len(slot) + 1), pa.int32()), _texts(list(texts), value))
    entries = pa.StructArray.from_arrays([_texts([s for _, s in names], slot), values], ["slot", "values"])
    nothing = pa.nulls(len(frame_key), pa.large_string())
    frames = pa.StructArray.from_arrays(
        [
            _texts(services, frame_key % len(services)),
            nothing,
            pa.nulls(len(frame_key), pa.list_(pa.large_string())),
            pa.ListArray.from_arrays(_offsets(frame, len(frame_key)), entries),
        ],
        ["service", "active_intent", "requested_slots", "slot_values"],
    )
    return pa.ListArray.from_arrays(_offsets(frame_key // len(services), n), frames)


def write_run(path: Path, table: pa.Table) -> None:
    """A run folder around a turns table."""
    (path / "traces").mkdir(parents=True)
    pq.write_table(table, path / "traces" / "turns.parquet", row_group_size=100_000)
    ids = table.column("dialogue_id").unique().to_pylist()
    rows = {"dialogue_id": ids, "method": ["bench"] * len(ids), "cell": [""] * len(ids), "trial": [0] * len(ids)}
    rows |= {"outcome": ["accepted"] * len(ids)}
    schema = pa.schema([f for f in DIALOGUES if f.name in rows])
    pq.write_table(pa.table(rows, schema=schema), path / "traces" / "dialogues.parquet")
    (path / "run.json").write_bytes(orjson.dumps({"schema": [], "methods": {"bench": {"declares": ["state"]}}}))


def main() -> None:
    """Make, read, score, and print seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--definitions", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write_run(run, synthetic(options.turns))
        watch = Watch()
        ((_, data, declares),) = read_inputs(run)
    print(f"{'read and join':32} {watch}  {data.n_turns:,} turns, {distinct_states(data):,} distinct gold states")
    asked = options.definitions.split(",") if options.definitions else None
    total = Watch()
    for definition in definitions_for(data, asked):
        watch = Watch()
        scores = score_input(data, declares, [definition.name])
        value = scores[definition.name].headline[1].overall.value
        print(f"{definition.name:32} {watch}  {'–' if value is None else f'{value:.4f}'}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{'all definitions':32} {total}  peak memory {peak:.1f} GB")


def distinct_states(data: ScoreInput) -> int:
    """How many different gold states there are."""
    rows = data.gold
    weights = np.random.default_rng(1).integers(1, 1 << 62, len(data.slots) * (len(data.values) + len(data.sets)))
    keys = np.zeros(data.n_turns, dtype=np.int64)
    np.add.at(keys, rows.turn, weights[rows.slot * (len(data.values) + len(data.sets)) + rows.value])
    return len(np.unique(keys))


class Watch:
    """Seconds since it was made: on the wall, and of processor time (what counts on a shared machine)."""

    def __init__(self) -> None:
        self.wall, self.busy = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.wall:8.2f} s wall {time.process_time() - self.busy:8.2f} s busy"


if __name__ == "__main__":
    main()
