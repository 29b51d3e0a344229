"""The JSON of the MultiWOZ_Evaluation package: dialogue to a list of turns, each a state or ``{"state": ..}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.errors import DataError
from dialoom.formats._states import (
    GoldDialogue,
    gold_from_reader,
    gold_rows,
    joined_rows,
    json_object,
    looks_like,
    plain_id,
    state_rows,
    whole_states,
)
from dialoom.metrics.compat.mwzeval import normal_slot
from dialoom.predictions import Misfits, Predictions, RunDialogue, Source, save_json, table

HINT = "Each dialogue is a list with one state a user turn: domain to slot to text."


@dataclass(frozen=True)
class MwzevalFormat:
    """Dialogues are looked up in gold by their id without case and ``.json``; gold is the same format or a data set.

    Where two slots of a domain have the same normalised name, the later one wins, as in the package.
    """

    name: str = "mwzeval"

    def detect(self, path: Path) -> bool:
        return looks_like(path, lambda value: isinstance(value, list))

    def read(self, source: Source) -> Predictions:
        if source.gold is None:
            raise DataError("gold is needed", where=str(source.predictions), hint="Name a gold file or data set.")
        misfits = Misfits(source.predictions)
        predicted = {}
        for name, turns in json_object(source.predictions).items():
            states = enumerate(_turns(name, turns, misfits))
            predicted[name] = [state_rows(s, "slot", misfits, name, i) for i, s in states]
        gold = _gold(source.gold)
        rows, missing = joined_rows(predicted, gold, misfits, source.partial)
        misfits.check(HINT)
        goals = {g.dialogue_id: g.goal for g in gold.values() if g.goal is not None}
        return Predictions(self.name, table(rows), {}, frozenset({"state"}), True, missing, goals=goals or None)

    def write(self, dialogues: Iterable[RunDialogue], declares: frozenset[str], out: Path) -> list[Path]:
        """``predictions.json``, and gold in the same form as ``gold.json`` (``null`` for an unlabelled turn)."""
        predictions, gold = {}, {}
        for dialogue in dialogues:
            states = [whole_states(turn) for turn in dialogue.turns]
            predictions[plain_id(dialogue.dialogue_id)] = [state for state, _ in states]
            gold[plain_id(dialogue.dialogue_id)] = [wanted for _, wanted in states]
        return [save_json(out / "predictions.json", predictions), save_json(out / "gold.json", gold)]


def _gold(path: Path) -> dict[str, GoldDialogue]:
    if not PLUGIN.detect(path):
        return gold_from_reader(path)
    misfits = Misfits(path)
    gold = {}
    for name, turns in json_object(path).items():
        unlabelled = {i for i, turn in enumerate(turns) if turn is None} if isinstance(turns, list) else set()
        given = [{} if turn is None else turn for turn in turns] if unlabelled else turns
        states = [gold_rows(s, "slot", misfits, name, i) for i, s in enumerate(_turns(name, given, misfits))]
        labelled = [None if i in unlabelled else state for i, state in enumerate(states)]
        gold[plain_id(name)] = GoldDialogue(name, labelled)
    misfits.check(HINT)
    return gold


def _turns(name: str, turns: Any, misfits: Misfits) -> list[Mapping[str, Mapping[str, Any]]]:
    if not isinstance(turns, list):
        misfits.add(name, None, "should be a list of turns")
        return []
    states: list[Mapping[str, Mapping[str, Any]]] = []
    for i, turn in enumerate(turns):
        state = turn["state"] if isinstance(turn, dict) and isinstance(turn.get("state"), dict) else turn
        if isinstance(turn, dict) and "response" in turn and "state" not in turn:
            state = None
        if not isinstance(state, dict):
            misfits.add(name, i, "has no state")
            state = {}
        states.append({domain: _last_of_each_name(slots) for domain, slots in state.items()})
    return states


def _last_of_each_name(slots: Any) -> Any:
    if not isinstance(slots, dict):
        return slots
    winners = {normal_slot(slot): slot for slot in slots}
    return {slot: value for slot, value in slots.items() if winners[normal_slot(slot)] == slot}


PLUGIN = MwzevalFormat()
