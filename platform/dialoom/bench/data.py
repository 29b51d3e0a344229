"""Synthetic dialogues and their schema: as many as asked for, the same ones for the same seed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson

SCHEMA = """\
name: bench
dontcare: true
services:
  - service_name: stay
    description: Rooms for the night
    slots:
      - {name: stay-area, description: part of town, is_categorical: true, possible_values: [north, south, east, west]}
      - {name: stay-name, description: name of the house, is_categorical: false}
      - {name: stay-nights, description: number of nights, is_categorical: false, type: integer}
      - {name: stay-price, description: price level, is_categorical: true, possible_values: [low, middle, high]}
    intents: [{name: stay, description: find or book a room}]
  - service_name: ride
    description: Cars with a driver
    slots:
      - {name: ride-from, description: where the ride begins, is_categorical: false}
      - {name: ride-to, description: where the ride ends, is_categorical: false}
      - {name: ride-at, description: time of departure, is_categorical: false, type: time}
    intents: [{name: ride, description: order a car}]
"""

_TEXT = (
    "please could you find me something quiet near the river with a view and breakfast for two people on a budget "
    "that is not too far from the station because we arrive late and leave early the next morning by train"
)
_WORDS = _TEXT.split()


def write_data(folder: Path, n_dialogues: int, *, turns: tuple[int, int] = (4, 10), seed: int = 0) -> tuple[Path, Path]:
    """Write ``n_dialogues`` of between ``turns`` user turns and their schema; returns both paths."""
    rng = random.Random(seed)
    schema, data = folder / "schema.yaml", folder / "dialogues.jsonl"
    schema.write_text(SCHEMA, encoding="utf-8")
    with data.open("wb") as out:
        for number in range(n_dialogues):
            out.write(orjson.dumps(_dialogue(f"bench-{number:07d}", rng, rng.randint(*turns))) + b"\n")
    return schema, data


def _dialogue(dialogue_id: str, rng: random.Random, n_turns: int) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for number in range(n_turns):
        text = " ".join(rng.choices(_WORDS, k=rng.randint(8, 24)))
        turns.append({"role": "user", "text": f"{text} ({dialogue_id[-7:]}/{number})"})
        turns.append({"role": "system", "text": " ".join(rng.choices(_WORDS, k=rng.randint(8, 24)))})
    return {"dialogue_id": dialogue_id, "turns": turns}
