"""Dialogues as read from any source: turns, gold frames, and what else the record held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from dialoom.text import is_chinese, storable_tree


class Speaker(StrEnum):
    """Who said a turn."""

    USER = "user"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Frame:
    """Gold annotation of one service at one user turn, as SGD defines a frame's state.

    ``slot_values`` maps a slot to all its acceptable surface forms, best first. ``active_intent`` is "NONE" where the
    user has none, ``None`` where the data set does not annotate intents; ``requested_slots`` likewise.
    """

    service: str
    slot_values: Mapping[str, tuple[str, ...]]
    active_intent: str | None = None
    requested_slots: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance. ``frames`` is ``None`` where there is no gold (system turns, unlabelled logs)."""

    speaker: Speaker
    text: str
    frames: tuple[Frame, ...] | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One dialogue, in order.

    ``services`` are the candidate services (SGD lists them); empty means every service of the schema. ``knowledge`` is
    a document the dialogue is about, ``extra`` keeps the record's other fields as read, ``source`` says file and place.
    """

    dialogue_id: str
    turns: tuple[Turn, ...]
    services: tuple[str, ...] = ()
    language: str = ""
    knowledge: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def lang(self) -> str:
        """``language`` if the record gave one, else ``zh`` or ``en`` by its characters."""
        if self.language:
            return self.language
        return "zh" if is_chinese(" ".join(t.text for t in self.turns[:6])) else "en"

    def content_hash(self) -> str:
        """Hex digest (32 characters) of everything but ``source``; equal content gives an equal hash."""
        return hashlib.blake2b(self.to_json(with_source=False), digest_size=16).hexdigest()

    def to_json(self, *, with_source: bool = True) -> bytes:
        """One JSON object, UTF-8; :meth:`from_json` gives the same dialogue back (lone surrogates as escapes)."""
        record: dict[str, Any] = {
            "dialogue_id": self.dialogue_id,
            "turns": [_turn_record(t) for t in self.turns],
            "services": list(self.services),
            "language": self.language,
            "knowledge": self.knowledge,
            "extra": dict(self.extra),
        }
        if with_source:
            record["source"] = self.source
        try:
            return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            return orjson.dumps(storable_tree(record), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, data: bytes) -> Dialogue:
        """Inverse of :meth:`to_json`."""
        record = orjson.loads(data)
        turns = tuple(
            Turn(
                Speaker(t["speaker"]),
                t["text"],
                None if t["frames"] is None else tuple(_frame(f) for f in t["frames"]),
            )
            for t in record["turns"]
        )
        return cls(
            dialogue_id=record["dialogue_id"],
            turns=turns,
            services=tuple(record["services"]),
            language=record["language"],
            knowledge=record["knowledge"],
            extra=record["extra"],
            source=record.get("source", ""),
        )


def _turn_record(turn: Turn) -> dict[str, Any]:
    frames = None
    if turn.frames is not None:
        frames = [
            {
                "service": f.service,
                "slot_values": {s: list(v) for s, v in f.slot_values.items()},
                "active_intent": f.active_intent,
                "requested_slots": None if f.requested_slots is None else list(f.requested_slots),
            }
            for f in turn.frames
        ]
    return {"speaker": turn.speaker.value, "text": turn.text, "frames": frames}


def _frame(record: dict[str, Any]) -> Frame:
    requested = record["requested_slots"]
    return Frame(
        service=record["service"],
        slot_values={s: tuple(v) for s, v in record["slot_values"].items()},
        active_intent=record["active_intent"],
        requested_slots=None if requested is None else tuple(requested),
    )
