"""An independent account of what the tracker must end with: upsert and the validator's rules, written from the
specification alone. It shares no code with the tracker; only the word lists are read from the same files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import dialoom
from dialoom.dialogue import Frame
from dialoom.schema import Schema, Slot

Key = tuple[str, str]
"""(service, slot)."""

_WORDS = Path(dialoom.__file__).parent / "methods" / "tracker" / "words"
_CLOCK = re.compile(r"\d\d:\d\d")


def plain(text: str) -> str:
    """NFKC, lower case, single blanks."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


@cache
def word_list(section: str) -> frozenset[str]:
    """The entries of one section of the English and Chinese word files."""
    found: set[str] = set()
    for name in ("en.txt", "zh.txt"):
        blocks = re.split(r"^\[(\w+)\]\s*$", (_WORDS / name).read_text(encoding="utf-8"), flags=re.M)
        body = dict(zip(blocks[1::2], blocks[2::2], strict=True)).get(section, "")
        for line in body.splitlines():
            if not line.startswith("#"):
                found |= {plain(entry) for entry in line.split(",") if entry.strip()}
    return frozenset(found)


@dataclass(frozen=True)
class Ruling:
    """What becomes of one proposed value: the form written, or the rule that rejects it; neither for "no value"."""

    form: str | None = None
    rule: str = ""


class Oracle:
    """Rules for the candidate services of one dialogue."""

    def __init__(self, schema: Schema, services: Iterable[str]) -> None:
        self.services = {name: schema.services[name] for name in services}
        self._dontcare = schema.dontcare
        kinds = word_list("kinds") | {plain(k) for s in self.services.values() for k in s.kinds}
        self._kinds = kinds | {k + "s" for k in kinds} | word_list("pointers")
        self._no_value = word_list("no_value") | {""}
        self._any = word_list("dontcare") | {"dontcare"}
        self._determiners = word_list("before")
        self._type_words = word_list("own_kind")

    def slot(self, key: Key) -> Slot | None:
        """The slot, if there is one."""
        service = self.services.get(key[0])
        return next((s for s in service.slots if s.name == key[1]), None) if service else None

    def rule_on(self, key: Key, value: str, active: Iterable[str]) -> Ruling:
        """The fate of ``value`` for a slot, where the services ``active`` are confirmed."""
        slot = self.slot(key)
        if slot is None:
            return Ruling(rule="schema.unknown_slot")
        folded = plain(value)
        listed = {plain(v).replace(" ", ""): v for v in reversed(slot.values)} if slot.is_categorical else {}
        if folded in self._no_value and folded.replace(" ", "") not in listed:
            return Ruling()
        if key[0] not in set(active):
            return Ruling(rule="action.intent_not_confirmed")
        if self._dontcare and folded in self._any:
            return Ruling("dontcare")
        if slot.is_categorical:
            form = listed.get(folded.replace(" ", ""))
            return Ruling(form) if form is not None else Ruling(rule="schema.categorical")
        if self._is_kind(folded) and not any(w in plain(slot.name) for w in self._type_words):
            return Ruling(rule="coref.kind")
        return self._typed(slot, value, folded)

    def _typed(self, slot: Slot, value: str, folded: str) -> Ruling:
        fits = {
            "text": True,
            "time": bool(_CLOCK.fullmatch(folded)) and folded < "24:00" and folded[3:] < "60",
            "integer": folded.isdecimal(),
            "day": folded in {f"{d}day" for d in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")},
            "date": bool(re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", folded)),
        }[slot.type.value]
        if not fits:
            return Ruling(rule="schema.type")
        return Ruling(value if slot.type.value == "text" else folded)

    def _is_kind(self, folded: str) -> bool:
        if folded in self._kinds:
            return True
        for word in self._determiners:
            rest = folded.removeprefix(word)
            if rest != folded and (rest[:1] == " " or not word.isascii()) and self._is_kind(rest.strip()):
                return True
        return False


def gold_after(before: Mapping[Key, tuple[str, ...]], frames: Iterable[Frame]) -> dict[Key, tuple[str, ...]]:
    """The annotated values after a turn; a service without a frame keeps its own."""
    frames = list(frames)
    gold = {k: v for k, v in before.items() if k[0] not in [f.service for f in frames]}
    for frame in frames:
        for slot, values in frame.slot_values.items():
            gold[frame.service, slot] = tuple(values)
    return gold
