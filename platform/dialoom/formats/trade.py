"""TRADE-style JSON: dialogue to ``domains`` and ``turns``, each turn with gold and predicted slots.

Slots are written ``domain-slot``, as an object to values or as a list of ``domain-slot-value`` texts. Read are the keys
``gold`` and ``pred``, TRADE's ``turn_belief`` and ``pred_bs_ptr``, and T5DST's ``turn_belief`` and ``pred_belief``; in
TRADE's own files a dialogue is its turns, without ``domains``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.formats._states import gold_rows, json_object, looks_like, pairs_to_state, state_rows
from dialoom.metrics.compat.multiwoz import TRADE_SLOTS, trade_slot
from dialoom.predictions import Misfits, Predictions, RunDialogue, RunTurn, Source, save_json, table
from dialoom.state import SlotRef

HINT = 'Each turn holds gold and predicted slots: "gold" and "pred", or "turn_belief" and "pred_bs_ptr".'
GOLD_KEYS = ("gold", "turn_belief")
PRED_KEYS = ("pred", "pred_bs_ptr", "pred_belief")
_SLOTS = [f"{domain}-{slot}" for domain, slots in TRADE_SLOTS.items() for slot in slots]


@dataclass(frozen=True)
class TradeFormat:
    """Gold is in the file itself. ``domains`` are the goal's; without them gold stands in. Turns are ordered by
    number.
    """

    name: str = "trade"

    def detect(self, path: Path) -> bool:
        return looks_like(path, _is_dialogue)

    def read(self, source: Source) -> Predictions:
        misfits = Misfits(source.predictions)
        rows: list[dict[str, Any]] = []
        goals: dict[str, tuple[str, ...]] = {}
        for name, dialogue in json_object(source.predictions).items():
            turns = _turns(dialogue)
            if turns is None:
                misfits.add(name, None, "should be an object of turns")
                continue
            if "domains" in dialogue:
                goals[name] = tuple(dialogue["domains"])
            for i, (key, turn) in enumerate(sorted(turns.items(), key=lambda t: _number(t[0]))):
                gold, pred = _member(turn, GOLD_KEYS), _member(turn, PRED_KEYS)
                if gold is _ABSENT or pred is _ABSENT:
                    misfits.add(name, i, f"(key {key}) needs gold and predicted slots")
                    continue
                gold_state = None if gold is None else pairs_to_state(gold, "gold", misfits, name, i, _SLOTS)
                pred_state = pairs_to_state(pred, "pred", misfits, name, i, _SLOTS)
                rows.append(
                    {
                        "dialogue_id": name,
                        "turn": i,
                        "user_turn": i,
                        "gold": None if gold_state is None else gold_rows(gold_state, "gold", misfits, name, i),
                        "state": state_rows(pred_state, "pred", misfits, name, i),
                    }
                )
        misfits.check(HINT)
        return Predictions(self.name, table(rows), {}, frozenset({"state"}), True, goals=goals or None)

    def write(self, dialogues: Iterable[RunDialogue], declares: frozenset[str], out: Path) -> list[Path]:
        """``predictions.json`` under TRADE's slot names; gold is ``null`` for an unlabelled turn."""
        record = {}
        for dialogue in dialogues:
            turns = {str(i): _written(turn) for i, turn in enumerate(dialogue.turns)}
            named = {ref.service for turn in dialogue.turns for ref in turn.gold or ()}
            domains = sorted(named) if dialogue.goal is None else list(dialogue.goal)
            record[dialogue.dialogue_id] = {"domains": domains, "turns": turns}
        return [save_json(out / "predictions.json", record)]


def _written(turn: RunTurn) -> dict[str, Any]:
    pred = {_name(ref): value for ref, value in turn.state.items()}
    if turn.gold is None:
        return {"gold": None, "pred": pred}
    gold = {_name(ref): f[0] if len(f) == 1 else list(f) for ref, f in turn.gold.items() if f}
    return {"gold": gold, "pred": pred}


def _name(ref: SlotRef) -> str:
    service, slot = trade_slot(ref)
    return f"{service}-{slot}"


_ABSENT = object()


def _member(turn: Any, keys: tuple[str, ...]) -> Any:
    return next((turn[k] for k in keys if k in turn), _ABSENT) if isinstance(turn, dict) else _ABSENT


def _turns(dialogue: Any) -> Mapping[str, Any] | None:
    turns = dialogue.get("turns", dialogue) if isinstance(dialogue, dict) else None
    return turns if isinstance(turns, dict) else None


def _number(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (1 << 30, key)


def _is_dialogue(value: Any) -> bool:
    first = next(iter((_turns(value) or {}).values()), None)
    return isinstance(first, dict) and _member(first, GOLD_KEYS + PRED_KEYS) is not _ABSENT


PLUGIN = TradeFormat()
