"""Small word lists of our own, from ``words/<language>.txt``: sections of entries parted by commas, joined."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dialoom.text import fold

_FOLDER = Path(__file__).parent / "words"


@cache
def word_lists() -> Mapping[str, tuple[str, ...]]:
    """Section name to its entries, folded, the longest first."""
    lists: dict[str, set[str]] = {}
    for path in sorted(_FOLDER.glob("*.txt")):
        section: set[str] = set()
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                section = lists.setdefault(line.strip("[] "), set())
            elif not line.startswith("#"):
                section.update(fold(word) for word in line.split(",") if word.strip())
    return {name: tuple(sorted(words, key=lambda w: (-len(w), w))) for name, words in lists.items()}
