"""Reader ``multiwoz22``: MultiWOZ 2.2, whose files have the form of Schema-Guided Dialogue (``dialogues_001.json``).

It gives what the reader ``multiwoz`` gives for the other versions, so that one schema (``schemas/multiwoz.yaml``), one
method and one set of scores serve all. What the form hides:

* Every user turn has a frame for each of the eight domains, with the whole state so far. A frame without a value says
  nothing; it is dropped, else each dialogue would seem to be about every domain.
* ``services`` are what annotators found in the dialogue. They are no candidates: domains are predicted.
* 25 of the schema's 61 slots (address, phone, reference, ...) only inform the user and belong to no state.
* A value is a list of forms that all count as right, best first. The forms are kept as they are, "dontcare" included:
  published scores differ in what they do with it.

Intents and requested slots are left out: they are named after 2.2's own schema, and ``find_taxi`` is not even in it.
Source of the format: Zang et al. 2020, "MultiWOZ 2.2", and its data release.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from dialoom.dialogue import Dialogue, Frame, Turn
from dialoom.errors import BadInput
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import Raw, unpacked_name
from dialoom.readers._records import dialogues
from dialoom.readers._split import json_records
from dialoom.readers._split_list import Split, SplitConfig
from dialoom.readers.sgd import ID_FIELDS, dialogue

_UNTRACKED = frozenset(
    f"{domain}-{slot}"
    for domain, slots in {
        "attraction": "address entrancefee openhours phone postcode",
        "hospital": "address phone postcode",
        "hotel": "address phone postcode ref",
        "police": "address phone postcode",
        "restaurant": "address phone postcode ref",
        "taxi": "phone type",
        "train": "duration price ref trainid",
    }.items()
    for slot in slots.split()
)


class Multiwoz22Reader:
    """The annotated services are kept in ``extra["services"]``."""

    name = "multiwoz22"
    config: type[ReaderConfig] = SplitConfig

    def wants(self, file_name: str) -> bool:
        return fnmatchcase(unpacked_name(file_name), "dialogues_*.json")

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        split = Split(config.ids)
        found = (dialogues(json_records(p, keyed=False), _dialogue, ID_FIELDS, split=split) for p in paths)
        return chain(chain.from_iterable(found), split.missing())


def _dialogue(value: Any, raw: Raw) -> Dialogue:
    read = dialogue(value, raw)
    return replace(
        read,
        turns=tuple(map(_turn, read.turns)),
        services=(),
        extra={**read.extra, "services": list(read.services)},
    )


def _turn(turn: Turn) -> Turn:
    if turn.frames is None:
        return turn
    states = ((f.service, {s: v for s, v in f.slot_values.items() if s not in _UNTRACKED}) for f in turn.frames)
    return replace(turn, frames=tuple(Frame(service, values) for service, values in states if values))


PLUGIN = Multiwoz22Reader()
