"""Reader ``multiwoz``: the original ``data.json`` of MultiWOZ 2.0, 2.1 and 2.4, one file or a folder of parts.

A file is ``{id: {"goal": ..., "log": [...]}}``; turns alternate, the user first. The state after a user turn is in the
``metadata`` of the system turn that follows. It becomes one gold frame for each domain with a value, under the slot
names of ``schemas/multiwoz.yaml`` (those of MultiWOZ 2.2). "" and "not mentioned" are no value; four spellings of "do
not care" become ``dontcare``; every other value stays as the file has it, "none" included: published scores differ in
what they do with it. Source of the format: Budzianowski et al. 2018, Eric et al. 2020, Ye et al. 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.errors import BadInput, DataError
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import Raw, unpacked_name
from dialoom.readers._records import a_list, a_text, an_id, an_object, dialogues, member, type_name
from dialoom.readers._split import json_records
from dialoom.readers._split_list import Split, SplitConfig
from dialoom.schema import DONTCARE

DOMAINS = ("taxi", "restaurant", "hospital", "hotel", "attraction", "train", "police", "bus")

_EMPTY = frozenset({"", "not mentioned"})
_DONTCARE = frozenset({"dont care", "dontcare", "don't care", "do not care"})
# What else lies beside data.json in the published folders.
_OTHER_FILES = ("README", "ontology", "schema", "dialogue_acts", "system_acts", "slot_descriptions")


class MultiwozReader:
    """``services`` stays empty (domains are predicted, never given); ``extra["goal_domains"]`` keeps the goal's."""

    name = "multiwoz"
    config: type[ReaderConfig] = SplitConfig

    def wants(self, file_name: str) -> bool:
        stem, dot, ending = unpacked_name(file_name).rpartition(".")
        return bool(dot) and ending == "json" and stem not in _OTHER_FILES and not stem.endswith(("_db", "ListFile"))

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        split = Split(config.ids)
        found = (dialogues(json_records(path, keyed=True), _dialogue, split=split) for path in paths)
        return chain(chain.from_iterable(found), split.missing())


def _dialogue(value: Any, raw: Raw) -> Dialogue:
    record = an_object(value, "a dialogue")
    log = a_list(member(record, "log"), "field 'log'")
    if not log:
        raise DataError("the dialogue has no turns")
    turns = [an_object(turn, "a turn", f"turn {i}") for i, turn in enumerate(log)]
    return Dialogue(
        dialogue_id=an_id(raw.key, "the dialogue's key"),
        turns=tuple(_turn(turns, i) for i in range(len(turns))),
        extra={"goal_domains": _goal_domains(record.get("goal", {}))},
        source=str(raw.place),
    )


def _turn(turns: Sequence[Mapping[str, Any]], i: int) -> Turn:
    where = f"turn {i}"
    text = a_text(member(turns[i], "text", where), "field 'text'", where)
    metadata = an_object(turns[i].get("metadata", {}), "field 'metadata'", where)
    if i % 2:
        if not metadata:
            hint = "Turns alternate, the user first; system turns carry the state."
            raise DataError("a system turn without metadata", where=where, hint=hint)
        return Turn(Speaker.SYSTEM, text)
    if metadata:
        hint = "Turns alternate, the user first; only system turns carry metadata."
        raise DataError("a user turn with metadata", where=where, hint=hint)
    if i + 1 == len(turns):
        return Turn(Speaker.USER, text)
    state = an_object(turns[i + 1].get("metadata", {}), "field 'metadata'", f"turn {i + 1}")
    return Turn(Speaker.USER, text, _frames(state, f"turn {i + 1}"))


def _frames(metadata: Mapping[str, Any], where: str) -> tuple[Frame, ...]:
    frames = []
    for domain, parts in metadata.items():
        if not isinstance(parts, dict):
            raise DataError(f"domain '{domain}' must be an object, but is {type_name(parts)}", where=where)
        values: dict[str, tuple[str, ...]] = {}
        for part in ("semi", "book"):
            fields = parts.get(part) or {}
            if not isinstance(fields, dict):
                raise DataError(f"'{part}' of '{domain}' must be an object, but is {type_name(fields)}", where=where)
            for name, value in fields.items():
                # Nine slots in ten are empty; a list cannot be looked up.
                if (type(value) is str and value in _EMPTY) or name == "booked":
                    continue
                slot = _slot_name(domain, part, name)
                forms = _forms(value, slot, where)
                if forms:
                    values[slot] = forms
        if values:
            frames.append(Frame(domain, values))
    return tuple(frames)


@lru_cache(maxsize=1024)
def _slot_name(domain: str, part: str, name: str) -> str:
    """The name in MultiWOZ 2.2: ``leaveAt`` of taxi is ``taxi-leaveat``, ``day`` in its ``book`` is ``-bookday``."""
    return f"{domain}-{'book' if part == 'book' else ''}{name.lower().replace(' ', '')}"


def _forms(value: Any, slot: str, where: str) -> tuple[str, ...]:
    """The value as gold, in a list all of them; empty where there is none."""
    forms = []
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, int) and not isinstance(one, bool):
            one = str(one)
        if not isinstance(one, str):
            raise DataError(f"slot '{slot}' must be a text, but is {type_name(one)}", where=where)
        plain = one.strip().lower()
        if plain not in _EMPTY:
            forms.append(DONTCARE if plain in _DONTCARE else one)
    return tuple(forms)


def _goal_domains(value: Any) -> list[str]:
    goal = an_object(value, "field 'goal'")
    return [domain for domain in DOMAINS if isinstance(goal.get(domain), dict) and goal[domain]]


PLUGIN = MultiwozReader()
