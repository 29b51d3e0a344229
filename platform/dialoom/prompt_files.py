"""Prompt files: one folder a language (``en``, ``zh``) beside the code that uses them.

A file is one text, or ``name = text`` lines (:func:`entries`). Fields are written ``{name}`` and filled by plain
replacement, so braces of other kinds need no escape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "zh")


def language_of(tag: str) -> str:
    """The prompt language for a language tag: ``zh`` for any Chinese, else ``en``."""
    return "zh" if tag[:2].lower() == "zh" else "en"


@cache
def read_prompts(folder: Path) -> Mapping[str, str]:
    """Every prompt below ``folder`` by its relative name without suffix (``en/system``), ends trimmed."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8").strip()
        for path in sorted(folder.glob("*/*.txt"))
    }


def entries(text: str) -> dict[str, str]:
    """The ``name = text`` lines of a prompt file; ``\\n`` in a text is a line break, a line with ``#`` first a note."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = line.partition(" = ")
        if mark and not line.startswith("#"):
            found[name.strip()] = value.strip().replace("\\n", "\n")
    return found


def fill(template: str, **fields: str) -> str:
    """``template`` with each ``{name}`` replaced, in one pass: a value that holds a field's name stays as it is."""
    pieces = template.split("{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, mark, rest = piece.partition("}")
        filled.append(fields[name] + rest if mark and name in fields else "{" + piece)
    return "".join(filled)
