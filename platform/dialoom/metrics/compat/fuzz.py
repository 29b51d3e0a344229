"""String similarity as the published evaluators' libraries compute it (fuzzywuzzy 0.18 with either back end).

Written from the rules those libraries follow; scores are integers from 0 to 100.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache

Ratio = Callable[[str, str], float]
"""Similarity of two texts in [0, 1]."""

_LATIN_1 = re.compile("[\x80-\xff]")
_NOT_WORD = re.compile(r"\W")


def difflib_ratio(first: str, second: str) -> float:
    """2M / (total length), M the length of the recursive longest matching blocks; the argument order matters."""
    return SequenceMatcher(None, first, second).ratio()


def levenshtein_ratio(first: str, second: str) -> float:
    """(total length - D) / (total length), D the edit distance with replacements at cost 2, as python-Levenshtein.

    With that cost D is the total length less twice the longest common subsequence.
    """
    total = len(first) + len(second)
    return 2 * _common_subsequence(first, second) / total if total else 1.0


def _common_subsequence(first: str, second: str) -> int:
    """Length of the longest common subsequence, a whole row at a time in the bits of one integer."""
    positions: dict[str, int] = {}
    for i, character in enumerate(first):
        positions[character] = positions.get(character, 0) | 1 << i
    mask = (1 << len(first)) - 1
    row = mask
    for character in second:
        hits = row & positions.get(character, 0)
        row = ((row + hits) | (row - hits)) & mask
    return len(first) - row.bit_count()


@lru_cache(maxsize=1 << 16)
def sorted_tokens(text: str) -> str:
    """``text`` without Latin-1 letters U+0080..U+00FF, non-word characters as blanks, lower case, tokens sorted."""
    words = _NOT_WORD.sub(" ", _LATIN_1.sub("", text)).lower().split()
    return " ".join(sorted(words))


def token_sort_ratio(gold: str, predicted: str, ratio: Ratio = difflib_ratio) -> int:
    """Similarity of the sorted tokens; 100 for two texts without any word, 0 for one."""
    first, second = sorted_tokens(gold), sorted_tokens(predicted)
    if first == second:
        return 100
    return round(100 * ratio(first, second)) if first and second else 0


def partial_ratio(first: str, second: str, ratio: Ratio = difflib_ratio) -> int:
    """The best similarity of the shorter text with a window of the longer one; 0 where just one is empty.

    Only windows that start where a matching block lines the two texts up are tried.
    """
    if first == second:
        return 100
    shorter, longer = (first, second) if len(first) <= len(second) else (second, first)
    if not shorter:
        return 0
    best = 0.0
    for block in SequenceMatcher(None, shorter, longer).get_matching_blocks():
        start = max(block.b - block.a, 0)
        score = ratio(shorter, longer[start : start + len(shorter)])
        if score > 0.995:
            return 100
        best = max(best, score)
    return round(100 * best)
