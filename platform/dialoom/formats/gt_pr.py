"""The JSON of the Granular Change Accuracy repository: dialogue to turn to ``{"gt": state, "pr": state}``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.formats._states import gold_rows, json_object, looks_like, state_rows, whole_states
from dialoom.predictions import Misfits, Predictions, RunDialogue, Source, save_json, table

HINT = 'Each turn holds "gt" and "pr": domain to slot to text.'


@dataclass(frozen=True)
class GtPrFormat:
    """Gold is in the file itself. Turns count in the order of the file."""

    name: str = "gt_pr"

    def detect(self, path: Path) -> bool:
        return looks_like(path, _is_dialogue)

    def read(self, source: Source) -> Predictions:
        misfits = Misfits(source.predictions)
        rows: list[dict[str, Any]] = []
        for name, turns in json_object(source.predictions).items():
            if not isinstance(turns, dict):
                misfits.add(name, None, "should be an object of turns")
                continue
            for i, turn in enumerate(turns.values()):
                if not isinstance(turn, dict) or not all(isinstance(turn.get(k), dict) for k in ("gt", "pr")):
                    misfits.add(name, i, 'needs "gt" and "pr"')
                    continue
                gold = gold_rows(turn["gt"], "gt", misfits, name, i)
                state = state_rows(turn["pr"], "pr", misfits, name, i)
                rows.append({"dialogue_id": name, "turn": i, "user_turn": i, "gold": gold, "state": state})
        misfits.check(HINT)
        return Predictions(self.name, table(rows), {}, frozenset({"state"}), whole_state=True)

    def write(self, dialogues: Iterable[RunDialogue], declares: frozenset[str], out: Path) -> list[Path]:
        """``predictions.json``; the format has no unlabelled turns, they are left out."""
        record: dict[str, Any] = {}
        for dialogue in dialogues:
            states = [whole_states(turn) for turn in dialogue.turns]
            labelled = [(pred, gold) for pred, gold in states if gold is not None]
            record[dialogue.dialogue_id] = {str(i): {"gt": g, "pr": p} for i, (p, g) in enumerate(labelled)}
        return [save_json(out / "predictions.json", record)]


def _is_dialogue(value: Any) -> bool:
    first = next(iter(value.values()), None) if isinstance(value, dict) else None
    return isinstance(first, dict) and ("gt" in first or "pr" in first)


PLUGIN = GtPrFormat()
