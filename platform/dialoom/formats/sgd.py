"""Folders in the official SGD format: gold dialogues with the predicted ``state`` in each user frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.errors import DataError
from dialoom.predictions import (
    Misfits,
    Predictions,
    RunDialogue,
    Source,
    expect,
    json_files,
    load_json,
    save_json,
    table,
)
from dialoom.schema import NO_INTENT, Service
from dialoom.schema_files import load_schema

SIDECAR = "dialoom.json"
DIALOGUES_A_FILE = 128
HINT = "Each predicted dialogue needs gold's turns, utterances and services, and a frame for each gold frame."


@dataclass(frozen=True)
class SgdFormat:
    """Rules of the official evaluation: dialogues of the prediction are looked up in gold, turns are paired in order,
    gold's frames are scored, further predicted frames are ignored, and of two frames of a service the last one counts.
    Where ``../train/schema.json`` lies beside the schema, as in the data set's release, its services are the seen ones.
    """

    name: str = "sgd"

    def detect(self, path: Path) -> bool:
        files = [path] if path.is_file() else sorted(path.glob("dialogues_*.json"))
        if not files or files[0].suffix != ".json":
            return False
        record = load_json(files[0])
        return isinstance(record, list) and bool(record) and isinstance(record[0], dict) and "turns" in record[0]

    def read(self, source: Source) -> Predictions:
        if source.gold is None:
            raise DataError("gold is needed", where=str(source.predictions), hint="Name the gold folder.")
        schema_path = source.schema or _beside(source.gold)
        schema = load_schema(schema_path).services
        train = schema_path.parent.parent / "train" / "schema.json"
        seen = frozenset(load_schema(train).services) if train.is_file() else None
        gold = load_dialogues(source.gold)
        predicted = load_dialogues(source.predictions)
        misfits = Misfits(source.predictions)
        rows: list[dict[str, Any]] = []
        for dialogue_id, dialogue in predicted.items():
            if dialogue_id not in gold:
                misfits.add(dialogue_id, None, "not in gold")
                continue
            try:
                rows += _rows(dialogue_id, gold[dialogue_id], dialogue, schema, misfits, source.partial)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                misfits.add(dialogue_id, None, f"gold or prediction is not in SGD's form ({error!r})")
        misfits.check(HINT)
        declares = _declared(source.predictions)
        missing = tuple(d for d in gold if d not in predicted)
        return Predictions(
            self.name, table(rows, spans=True), schema, declares, whole_state=False, missing=missing, seen=seen
        )

    def write(self, dialogues: Iterable[RunDialogue], declares: frozenset[str], out: Path) -> list[Path]:
        """``dialogues_NNN.json`` of 128 dialogues each, and ``dialoom.json``, which says the outputs that are
        predicted.

        The system turn after the last user turn is not in the traces and so not written; nothing is scored in it.
        """
        written, waiting = [save_json(out / SIDECAR, {"declares": sorted(declares)})], []
        for dialogue in dialogues:
            waiting.append(_record(dialogue))
            if len(waiting) == DIALOGUES_A_FILE:
                written.append(save_json(out / f"dialogues_{len(written):03d}.json", waiting))
                waiting = []
        if waiting:
            written.append(save_json(out / f"dialogues_{len(written):03d}.json", waiting))
        return written


def _record(dialogue: RunDialogue) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    held: dict[str, None] = {}
    for turn in dialogue.turns:
        if turn.turn > len(turns):
            turns.append({"speaker": "SYSTEM", "utterance": turn.system_text, "frames": []})
        held |= dict.fromkeys(turn.gold_services or ()) | dict.fromkeys(ref.service for ref in turn.state)
        frames = []
        for service in held:
            values = {ref.slot: [value] for ref, value in turn.state.items() if ref.service == service}
            requested = [ref.slot for ref in turn.requested if ref.service == service]
            intent = turn.active_intents.get(service, NO_INTENT)
            state = {"active_intent": intent, "requested_slots": requested, "slot_values": values}
            frames.append({"service": service, "state": state})
        turns.append({"speaker": "USER", "utterance": turn.user_text, "frames": frames})
    return {"dialogue_id": dialogue.dialogue_id, "turns": turns}


def _declared(path: Path) -> frozenset[str]:
    """The outputs that a folder predicts: all, unless its sidecar says otherwise."""
    sidecar = (path if path.is_dir() else path.parent) / SIDECAR
    if not sidecar.is_file():
        return frozenset({"state", "intent", "requested_slots", "slot_spans"})
    record = expect(load_json(sidecar), dict, "the file", str(sidecar))
    return frozenset(expect(record.get("declares"), list, "declares", str(sidecar)))


def _beside(gold: Path) -> Path:
    path = (gold if gold.is_dir() else gold.parent) / "schema.json"
    if not path.is_file():
        raise DataError("no schema file", where=str(path), hint="Name the schema file of the evaluated split.")
    return path


def load_dialogues(path: Path) -> dict[str, dict[str, Any]]:
    """All dialogues of a folder or file by id. Raises DataError for a double id or another format."""
    pattern = "dialogues_*.json" if path.is_dir() and any(path.glob("dialogues_*.json")) else "*.json"
    found: dict[str, dict[str, Any]] = {}
    for file in json_files(path, pattern):
        for i, dialogue in enumerate(expect(load_json(file), list, "the file", str(file))):
            where = f"{file} record {i}"
            expect(dialogue, dict, "a dialogue", where)
            dialogue_id = expect(dialogue.get("dialogue_id"), str, "dialogue_id", where)
            if dialogue_id in found:
                raise DataError(f"dialogue {dialogue_id} comes twice", where=where, hint="Remove one of the two.")
            expect(dialogue.get("turns"), list, "turns", f"{where} ({dialogue_id})")
            found[dialogue_id] = dialogue
    return found


def _rows(
    dialogue_id: str,
    gold: Mapping[str, Any],
    predicted: Mapping[str, Any],
    schema: Mapping[str, Service],
    misfits: Misfits,
    partial: bool,
) -> list[dict[str, Any]]:
    gold_turns, pred_turns = gold["turns"], predicted["turns"]
    given, wanted = _user_turns(pred_turns), _user_turns(gold_turns)
    if len(pred_turns) > len(gold_turns) or (given < wanted and not partial):
        misfits.add(dialogue_id, None, f"{len(pred_turns)} turns, gold has {len(gold_turns)}")
        return []
    if "services" in predicted and set(predicted["services"]) != set(gold.get("services", ())):
        misfits.add(dialogue_id, None, f"services {predicted.get('services')}, gold has {gold.get('services')}")
    rows: list[dict[str, Any]] = []
    state: dict[str, dict[str, str]] = {}
    for i, (turn, guess) in enumerate(zip(gold_turns, pred_turns, strict=False)):
        for key in ("speaker", "utterance"):
            if turn.get(key) != guess.get(key):
                misfits.add(dialogue_id, i, f"{key} differs from gold")
        if turn.get("speaker") != "USER":
            continue
        frames = {f.get("service"): f for f in guess.get("frames", ())}
        used = {}
        for frame in turn["frames"]:
            if _fits(dialogue_id, i, frame["service"], frames, schema, misfits):
                used[frame["service"]] = frames[frame["service"]]
        for service, frame in frames.items():
            if service in used or _is_whole(frame):
                state[service] = {slot: forms[0] for slot, forms in frame["state"]["slot_values"].items()}
        gold_frames = [f for f in turn["frames"] if f["service"] in used]
        rows.append(_row(dialogue_id, i, len(rows), turn, gold_frames, guess, used, state, schema))
    return rows


def _user_turns(turns: list[dict[str, Any]]) -> int:
    return sum(turn.get("speaker") == "USER" for turn in turns)


def _is_whole(frame: Any) -> bool:
    """Whether a frame that no gold frame asks for has a state; the official evaluation does not look at it."""
    state = frame.get("state")
    values = state.get("slot_values") if isinstance(state, dict) else None
    return isinstance(values, dict) and all(
        isinstance(v, list) and v and isinstance(v[0], str) for v in values.values()
    )


def _fits(
    dialogue_id: str,
    turn: int,
    service: str,
    frames: Mapping[str, Any],
    schema: Mapping[str, Service],
    misfits: Misfits,
) -> bool:
    if service not in schema:
        misfits.add(dialogue_id, turn, f"service {service} is not in the schema")
        return False
    if service not in frames:
        misfits.add(dialogue_id, turn, f"no frame for service {service}")
        return False
    state = frames[service].get("state")
    values = state.get("slot_values") if isinstance(state, dict) else None
    if not isinstance(values, dict):
        misfits.add(dialogue_id, turn, f"the frame of {service} has no state with slot_values")
        return False
    wrong = [s for s, v in values.items() if not (isinstance(v, list) and v and isinstance(v[0], str))]
    for slot in wrong:
        misfits.add(dialogue_id, turn, f"slot {service} {slot} needs a list with at least one text")
    return not wrong


def _row(
    dialogue_id: str,
    turn: int,
    user_turn: int,
    gold: Mapping[str, Any],
    gold_frames: list[dict[str, Any]],
    guess: Mapping[str, Any],
    used: Mapping[str, dict[str, Any]],
    state: Mapping[str, Mapping[str, str]],
    schema: Mapping[str, Service],
) -> dict[str, Any]:
    return {
        "dialogue_id": dialogue_id,
        "turn": turn,
        "user_turn": user_turn,
        "gold": [
            {
                "service": frame["service"],
                "active_intent": frame["state"]["active_intent"],
                "requested_slots": frame["state"]["requested_slots"],
                "slot_values": [{"slot": s, "values": v} for s, v in frame["state"]["slot_values"].items()],
            }
            for frame in gold_frames
        ],
        "state": [
            {"service": service, "slot": slot, "value": value}
            for service, values in state.items()
            for slot, value in values.items()
        ],
        "active_intents": [
            {"service": service, "intent": frame["state"].get("active_intent", "NONE")}
            for service, frame in used.items()
        ],
        "requested": [
            {"service": service, "slot": slot}
            for service, frame in used.items()
            for slot in frame["state"].get("requested_slots", ())
        ],
        "gold_spans": [_spans(f, gold["utterance"], schema) for f in gold_frames],
        "pred_spans": [_spans(f, guess["utterance"], schema) for f in used.values()],
    }


def _spans(frame: Mapping[str, Any], utterance: str, schema: Mapping[str, Service]) -> dict[str, Any]:
    """Marked spans of free-text slots as slot and text in turns, ``None`` where the frame marks none at all."""
    service = frame["service"]
    if "slots" not in frame:
        return {"service": service, "spans": None}
    slots = schema[service].slot_by_name
    marked = (s for s in frame["slots"] if s["slot"] in slots and not slots[s["slot"]].is_categorical)
    spans = [text for s in marked for text in (s["slot"], utterance[s["start"] : s["exclusive_end"]])]
    return {"service": service, "spans": spans}


PLUGIN = SgdFormat()
