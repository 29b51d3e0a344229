"""History retrieval (τ_H): which earlier turns fit a query, in any language, with no model.

BM25 over words for scripts that part them with blanks and over character pairs for Chinese, Japanese, Thai and the
like. Each turn also holds what it changed in the state (service, slot, value), so "the hotel" finds the turn that set
one even where the word was never said.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from dialoom.methods.tracker.word_lists import word_lists
from dialoom.text import fold

_K1, _B = 1.2, 0.6
_CHANGE_WEIGHT = 2
"""A term of what a turn changed counts as this many of what was said."""
_RECENCY = 0.02
"""Added for each turn later: between equal scores the newer wins, and no more."""

_DENSE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_DENSE}]+|(?:(?![{_DENSE}])[^\W_])+")
_IS_DENSE = re.compile(f"[{_DENSE}]")


class Found(NamedTuple):
    """A turn that fits, with its score."""

    turn: int
    score: float


def terms(text: str) -> list[str]:
    """What ``text`` is searched by: words without a plural ending, and pairs of characters of dense scripts."""
    found: list[str] = []
    passed_over = _stop_words()
    for run in _TOKEN.findall(fold(text)):
        if not _IS_DENSE.match(run):
            if run not in passed_over:
                found.append(_stem(run))
        elif len(run) == 1:
            if run not in passed_over:
                found.append(run)
        else:
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
            found.extend(c for c in run if c not in passed_over)
    return found


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(word_lists()["stop"])


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


@dataclass(slots=True)
class _Entry:
    turn: int
    counts: Counter[str]
    length: float


class TurnIndex:
    """The turns of one dialogue, searchable; grows turn by turn."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._seen_in: Counter[str] = Counter()
        self._length = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, turn: int, text: str, changed: Sequence[str] = ()) -> None:
        """Append a turn; ``changed`` are texts that say what it set: service, kind words, slot, value."""
        counts: Counter[str] = Counter(terms(text))
        length = float(sum(counts.values()))
        for change in changed:
            for term in set(terms(change)):
                counts[term] += _CHANGE_WEIGHT
        entry = _Entry(turn, counts, length)
        self._entries.append(entry)
        self._seen_in.update(counts.keys())
        self._length += entry.length

    def search(self, query: str, limit: int = 3) -> list[Found]:
        """At most ``limit`` turns with a term of ``query``, best first."""
        wanted = Counter(terms(query))
        total = len(self._entries)
        if not wanted or not total:
            return []
        mean = self._length / total or 1.0
        weights = {
            t: n * math.log(1 + (total - self._seen_in[t] + 0.5) / (self._seen_in[t] + 0.5))
            for t, n in wanted.items()
            if t in self._seen_in
        }
        found = []
        for entry in self._entries:
            norm = _K1 * (1 - _B + _B * entry.length / mean)
            score = sum(w * c * (_K1 + 1) / (c + norm) for t, w in weights.items() if (c := entry.counts[t]))
            if score:
                found.append(Found(entry.turn, score + _RECENCY * entry.turn / (total + 1)))
        found.sort(key=lambda f: -f.score)
        return found[:limit]
