"""Small records in the formats of the readers, and dialogues for round trips."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.errors import BadInput


def sgd_turn(speaker: str = "USER", text: str = "hi", **slots: list[str]) -> dict[str, Any]:
    """A turn with one frame of service ``Cafes_1``; a system turn has no state."""
    if speaker != "USER":
        return {"speaker": speaker, "utterance": text, "frames": []}
    state = {"active_intent": "FindCafe", "requested_slots": [], "slot_values": slots}
    return {"speaker": speaker, "utterance": text, "frames": [{"service": "Cafes_1", "state": state}]}


def sgd_dialogue(dialogue_id: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """A dialogue of ``turns``, or of one user turn."""
    return {"dialogue_id": dialogue_id, "services": ["Cafes_1"], "turns": list(turns) or [sgd_turn()]}


def mwz_dialogue(*states: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """A dialogue with a user and a system turn for each state (domain to ``semi`` and ``book``)."""
    log: list[dict[str, Any]] = []
    for i, state in enumerate(states):
        log += [{"text": f"user {i}", "metadata": {}}, {"text": f"system {i}", "metadata": state}]
    return {"goal": {"hotel": {"info": {}}, "taxi": {}, "message": ["x"]}, "log": log}


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def sorted_out(items: Iterable[Dialogue | BadInput]) -> tuple[list[Dialogue], list[BadInput]]:
    """Dialogues and bad inputs apart, each in order."""
    found = list(items)
    return [x for x in found if isinstance(x, Dialogue)], [x for x in found if isinstance(x, BadInput)]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda s: s.strip() != "")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FORMS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=1, max_size=3)
FRAMES = st.builds(
    Frame,
    service=NAMES,
    slot_values=st.dictionaries(NAMES, FORMS.map(tuple), max_size=3),
    active_intent=NAMES,
    requested_slots=st.lists(NAMES, max_size=2).map(tuple),
)
USER_TURNS = st.builds(
    Turn,
    speaker=st.just(Speaker.USER),
    text=TEXTS,
    frames=st.lists(FRAMES, max_size=3, unique_by=lambda f: f.service).map(tuple),
)
SYSTEM_TURNS = st.builds(Turn, speaker=st.just(Speaker.SYSTEM), text=TEXTS)
DIALOGUES = st.builds(
    Dialogue,
    dialogue_id=NAMES,
    turns=st.lists(USER_TURNS | SYSTEM_TURNS, min_size=1, max_size=5).map(tuple),
    services=st.lists(NAMES, max_size=3).map(tuple),
)
