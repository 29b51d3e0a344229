"""Reader ``sgd``: the official files of Schema-Guided Dialogue, and what is published in their format.

A file is a list of dialogues (``dialogues_001.json``); of a folder only ``dialogues_*.json`` is taken, so that its
``schema.json`` is left alone. Source of the format: Rastogi et al. 2020, "Towards Scalable Multi-Domain Conversational
Agents", and its data release. MultiWOZ 2.2 has the same format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.errors import BadInput, DataError
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import Raw, unpacked_name
from dialoom.readers._records import a_list, a_text, an_id, an_object, dialogues, member, texts
from dialoom.readers._split import json_records
from dialoom.readers._split_list import Split, SplitConfig

_SPEAKERS = {"USER": Speaker.USER, "SYSTEM": Speaker.SYSTEM}
_OWN_FIELDS = frozenset({"dialogue_id", "services", "turns"})
ID_FIELDS = ("dialogue_id",)


class SgdReader:
    """Gold frames of user turns are kept whole (all surface forms, intent, requested slots); system turns have none."""

    name = "sgd"
    config: type[ReaderConfig] = SplitConfig

    def wants(self, file_name: str) -> bool:
        return fnmatchcase(unpacked_name(file_name), "dialogues_*.json")

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        split = Split(config.ids)
        found = (dialogues(json_records(p, keyed=False), dialogue, ID_FIELDS, split=split) for p in paths)
        return chain(chain.from_iterable(found), split.missing())


def dialogue(value: Any, raw: Raw) -> Dialogue:
    """One parsed record as it is. Raises DataError."""
    record = an_object(value, "a dialogue")
    turns = a_list(member(record, "turns"), "field 'turns'")
    if not turns:
        raise DataError("the dialogue has no turns")
    return Dialogue(
        dialogue_id=an_id(member(record, "dialogue_id"), "field 'dialogue_id'"),
        turns=tuple(_turn(turn, f"turn {i}") for i, turn in enumerate(turns)),
        services=texts(member(record, "services"), "field 'services'"),
        extra={k: v for k, v in record.items() if k not in _OWN_FIELDS} if len(record) > len(_OWN_FIELDS) else {},
        source=str(raw.place),
    )


def _turn(value: Any, where: str) -> Turn:
    record = an_object(value, "a turn", where)
    said_by = a_text(member(record, "speaker", where), "field 'speaker'", where)
    speaker = _SPEAKERS.get(said_by)
    if speaker is None:
        raise DataError(f"unknown speaker '{said_by}'", where=where, hint="Allowed: USER, SYSTEM.")
    text = a_text(member(record, "utterance", where), "field 'utterance'", where)
    if speaker is Speaker.SYSTEM or "frames" not in record:
        return Turn(speaker, text)
    frames = a_list(record["frames"], "field 'frames'", where)
    return Turn(speaker, text, tuple(_frame(frame, where) for frame in frames))


def _frame(value: Any, where: str) -> Frame:
    record = an_object(value, "a frame", where)
    service = a_text(member(record, "service", where), "field 'service'", where)
    where = f"{where}, service '{service}'"
    state = an_object(member(record, "state", where), "field 'state'", where)
    values = an_object(member(state, "slot_values", where), "field 'slot_values'", where)
    return Frame(
        service=service,
        slot_values={slot: _surface_forms(forms, slot, where) for slot, forms in values.items()},
        active_intent=a_text(member(state, "active_intent", where), "field 'active_intent'", where),
        requested_slots=texts(member(state, "requested_slots", where), "field 'requested_slots'", where),
    )


def _surface_forms(value: Any, slot: str, where: str) -> tuple[str, ...]:
    forms = texts(value, f"slot '{slot}'", where)
    if not forms:
        raise DataError(f"slot '{slot}' has an empty list of values", where=where)
    return forms


PLUGIN = SgdReader()
