"""What has been said and recorded so far in one dialogue: searched, quoted, and asked where a value comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dialoom.dialogue import Speaker
from dialoom.method import Support
from dialoom.methods.tracker.retrieval import TurnIndex, terms
from dialoom.schema import Service
from dialoom.state import Delta, SlotRef
from dialoom.text import fold

QUOTE = 240
"""Characters of a turn that a search result quotes."""

_NOT_WORD = re.compile(r"[\W_]+")


@dataclass(slots=True)
class Said:
    """One turn that is over, and what it changed."""

    turn: int
    speaker: Speaker
    text: str
    lowered: str
    changed: dict[SlotRef, str] = field(default_factory=dict)


class History:
    """Grows with the dialogue; the search index is made at the first search."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self.turns: list[Said] = []
        self._services = services
        self._index = TurnIndex()
        self._spoken: str | None = None

    def add(self, turn: int, speaker: Speaker, text: str) -> None:
        """Append a turn."""
        self.turns.append(Said(turn, speaker, text, _lowered(text)))
        self._spoken = None

    def change(self, delta: Delta) -> None:
        """What the newest turn changed."""
        self.turns[-1].changed = dict(delta)

    def search(self, query: str, *, before: int, limit: int = 3) -> list[Said]:
        """The turns with an index below ``before`` that fit ``query``, best first."""
        for position in range(len(self._index), len(self.turns)):
            said = self.turns[position]
            if said.turn >= before:
                break
            self._index.add(position, said.text, self._changes(said.changed))
        return [self.turns[found.turn] for found in self._index.search(query, limit)]

    def _changes(self, changed: Mapping[SlotRef, str]) -> list[str]:
        texts = []
        for ref, value in changed.items():
            service = self._services.get(ref.service)
            kinds = service.kinds if service else ()
            texts.append(" ".join([ref.service.replace("_", " "), *kinds, ref.slot.replace("_", " "), value]))
        return texts

    def holds(self, value: str) -> bool:
        """Whether ``value`` was said by anyone, but for case, blanks and punctuation."""
        if self._spoken is None:
            self._spoken = f" {' '.join(_spoken(said.text) for said in self.turns)} "
        wanted = _spoken(value)
        return (f" {wanted} " if wanted.isascii() else wanted) in self._spoken

    def support(self, delta: Delta) -> list[Support]:
        """Where each value of ``delta`` was said last: at most one place a value, none where it was never said."""
        found = []
        for ref, value in delta.items():
            wanted = value.lower()
            for said in reversed(self.turns):
                start = _find_whole(said.lowered, wanted)
                if start >= 0:
                    found.append(Support(ref, said.turn, start, start + len(wanted)))
                    break
        return found


def quote(text: str, query: str) -> str:
    """At most :data:`QUOTE` characters of ``text`` on one line, around the first term of ``query``."""
    if len(text) <= QUOTE:
        return " ".join(text.split())
    lowered = _lowered(text)
    places = [place for term in terms(query) if (place := lowered.find(term)) >= 0]
    start = max(0, min(places, default=0) - QUOTE // 2)
    cut = " ".join(text[start : start + QUOTE].split())
    return f"{'…' if start else ''}{cut}…"


def _spoken(text: str) -> str:
    return _NOT_WORD.sub(" ", fold(text)).strip()


def _lowered(text: str) -> str:
    """``text`` in lower case with every character at its place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _find_whole(text: str, wanted: str) -> int:
    """Where ``wanted`` stands in ``text`` and is not part of a longer ASCII word or number; -1 for nowhere."""
    if not wanted:
        return -1
    end = len(text)
    while (start := text.rfind(wanted, 0, end)) >= 0:
        after = start + len(wanted)
        glued_before = start > 0 and _glued(text[start - 1], wanted[0])
        if not glued_before and not (after < len(text) and _glued(wanted[-1], text[after])):
            return start
        end = after - 1
    return -1


def _glued(left: str, right: str) -> bool:
    if not (left.isascii() and right.isascii()):
        return False
    return (left.isalnum() or left == ":") and (right.isalnum() or right == ":")
