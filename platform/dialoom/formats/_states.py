"""What the formats of whole states share: rows of the turns table, gold from the same format or from a reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.errors import DataError, DialoomError, JobError
from dialoom.metrics.compat.multiwoz import bare_name
from dialoom.predictions import Misfits, RunTurn, expect, load_json

DomainState = Mapping[str, Mapping[str, Any]]
"""Domain to slot to value; a gold value may be a list of accepted forms."""


@dataclass(frozen=True)
class GoldDialogue:
    """Gold of one dialogue: its own id, the state after each user turn (``None``: not labelled), goal domains."""

    dialogue_id: str
    turns: Sequence[Sequence[dict[str, Any]] | None]
    goal: tuple[str, ...] | None = None


def plain_id(dialogue_id: str) -> str:
    """An id in lower case without ``.json``: the spelling that differs between files of one data set."""
    return dialogue_id.lower().removesuffix(".json")


def state_rows(state: DomainState, place: str, misfits: Misfits, dialogue: str, turn: int) -> list[dict[str, str]]:
    """A predicted state as the traces hold it; values that are no text, and lists, are misfits."""
    rows = []
    for domain, slots in state.items():
        for slot, value in _items(slots, domain, place, misfits, dialogue, turn):
            if isinstance(value, str):
                rows.append({"service": domain, "slot": slot, "value": value})
            else:
                misfits.add(dialogue, turn, f"{place} {domain} {slot} should be a text")
    return rows


def gold_rows(state: DomainState, place: str, misfits: Misfits, dialogue: str, turn: int) -> list[dict[str, Any]]:
    """A gold state as the traces hold it: one frame a domain."""
    frames = []
    for domain, slots in state.items():
        values = []
        for slot, value in _items(slots, domain, place, misfits, dialogue, turn):
            forms = [value] if isinstance(value, str) else value
            if isinstance(forms, list) and forms and all(isinstance(f, str) for f in forms):
                values.append({"slot": slot, "values": forms})
            else:
                misfits.add(dialogue, turn, f"{place} {domain} {slot} should be a text, or a list of texts")
        frames.append(gold_frame(domain, values))
    return frames


def gold_frame(service: str, slot_values: list[dict[str, Any]]) -> dict[str, Any]:
    """A gold frame that says nothing of intents and requested slots."""
    return {"service": service, "active_intent": None, "requested_slots": None, "slot_values": slot_values}


def _items(
    slots: Any, domain: str, place: str, misfits: Misfits, dialogue: str, turn: int
) -> Iterable[tuple[str, Any]]:
    if isinstance(slots, Mapping):
        return slots.items()
    misfits.add(dialogue, turn, f"{place} {domain} should be an object of slots")
    return ()


def pairs_to_state(
    pairs: Any, place: str, misfits: Misfits, dialogue: str, turn: int, slots: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """``{"domain-slot": value}``, or a list of ``"domain-slot-value"`` texts, as domain to slot to value.

    In a text the slot is the longest of ``slots`` that it starts with, else what stands before the last "-".
    """
    state: dict[str, dict[str, Any]] = {}
    if isinstance(pairs, Mapping):
        entries = list(pairs.items())
    elif isinstance(pairs, list) and all(isinstance(p, str) for p in pairs):
        entries = [_split(p, slots) for p in pairs]
    else:
        misfits.add(dialogue, turn, f"{place} should be an object, or a list of texts")
        return state
    for key, value in entries:
        domain, dash, slot = key.partition("-")
        if dash and domain and slot:
            state.setdefault(domain, {})[slot] = value
        else:
            misfits.add(dialogue, turn, f"{place} '{key}' should be written domain-slot")
    return state


def _split(text: str, slots: Sequence[str]) -> tuple[str, str]:
    known = max((s for s in slots if text.startswith(f"{s}-")), key=len, default="")
    if known:
        return known, text[len(known) + 1 :]
    slot, _, value = text.rpartition("-")
    return slot, value


def joined_rows(
    predicted: Mapping[str, Sequence[Sequence[dict[str, str]]]],
    gold: Mapping[str, GoldDialogue],
    misfits: Misfits,
    partial: bool,
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows of the turns table, and the gold dialogues that are not predicted. Ids are compared in plain spelling."""
    rows: list[dict[str, Any]] = []
    seen: dict[str, str] = {}
    for name, turns in predicted.items():
        plain = plain_id(name)
        if plain not in gold:
            misfits.add(name, None, "not in gold")
            continue
        if plain in seen:
            misfits.add(name, None, f"comes twice (also as {seen[plain]})")
            continue
        seen[plain] = name
        expected = gold[plain].turns
        if len(turns) > len(expected) or (len(turns) < len(expected) and not partial):
            misfits.add(name, None, f"{len(turns)} turns, gold has {len(expected)}")
            continue
        for i, (state, frames) in enumerate(zip(turns, expected, strict=False)):
            row = {"dialogue_id": gold[plain].dialogue_id, "turn": i, "user_turn": i, "state": state, "gold": frames}
            rows.append(row)
    return rows, tuple(g.dialogue_id for plain, g in gold.items() if plain not in seen)


def gold_from_reader(path: Path) -> dict[str, GoldDialogue]:
    """Gold of a data set that a reader knows (MultiWOZ's ``data.json``, SGD-like files), by plain id.

    Raises DataError where no reader finds labelled dialogues.
    """
    from dialoom import registry
    from dialoom.dialogue import Dialogue
    from dialoom.reader import open_dialogues

    for name in (n for n in ("multiwoz", "multiwoz22") if n in registry.names("readers")):
        found: dict[str, GoldDialogue] = {}
        try:
            for item in open_dialogues(name, [path], {}):
                if isinstance(item, Dialogue):
                    found[plain_id(item.dialogue_id)] = _from_dialogue(item)
        except (DataError, JobError):
            continue
        if any(turn is not None for g in found.values() for turn in g.turns):
            return found
    hint = "Gold is a JSON of the predictions' own format, or a data set that a reader knows (MultiWOZ, SGD)."
    raise DataError("no gold states are found", where=str(path), hint=hint)


def _from_dialogue(dialogue: Any) -> GoldDialogue:
    from dialoom.dialogue import Speaker

    turns = []
    for turn in dialogue.turns:
        if turn.speaker is Speaker.USER:
            turns.append(None if turn.frames is None else [_frame(f) for f in turn.frames])
    goal = dialogue.extra.get("goal_domains")
    return GoldDialogue(dialogue.dialogue_id, turns, tuple(goal) if isinstance(goal, list) else None)


def _frame(frame: Any) -> dict[str, Any]:
    prefix = f"{frame.service}-"
    values = [{"slot": s.removeprefix(prefix), "values": list(v)} for s, v in frame.slot_values.items()]
    return gold_frame(frame.service, values)


def whole_states(turn: RunTurn) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]] | None]:
    """Predicted and gold state of a run's turn as domain to slot to value, slots without their domain's prefix.

    A gold slot with several accepted forms has them as a list; gold is ``None`` for an unlabelled turn.
    """
    state: dict[str, dict[str, str]] = {}
    for ref, value in turn.state.items():
        state.setdefault(ref.service, {})[bare_name(ref)] = value
    if turn.gold is None:
        return state, None
    gold: dict[str, dict[str, Any]] = {}
    for ref, forms in turn.gold.items():
        if forms:
            gold.setdefault(ref.service, {})[bare_name(ref)] = forms[0] if len(forms) == 1 else list(forms)
    return state, gold


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file."""
    record: dict[str, Any] = expect(load_json(path), dict, "the file", str(path))
    return record


def looks_like(path: Path, test: Any) -> bool:
    """Whether ``path`` is a JSON file holding an object of which ``test`` (first value) is true."""
    if not path.is_file() or path.suffix != ".json":
        return False
    try:
        record = load_json(path)
    except DialoomError:
        return False
    return isinstance(record, dict) and bool(record) and bool(test(next(iter(record.values()))))
