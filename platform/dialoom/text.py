"""Untrusted text: made safe for a terminal, a log line, an Arrow column; and language detection.

Dialogue text and model output may hold control characters, terminal escapes, lone surrogates and text of any length.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")

DEEPEST = 100
"""Levels of a JSON tree that every writer follows."""


def storable(text: str) -> str:
    """``text`` as valid Unicode: a lone surrogate becomes its escape (``\\ud800``); all else is kept, NUL included."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def storable_tree(tree: Any) -> Any:
    """A copy of a JSON tree that any JSON writer takes: texts storable, keys texts, odd numbers and objects as texts.

    What is nested deeper than writers follow becomes the text of its own JSON.
    """
    return _storable_tree(tree, 0)


def _storable_tree(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, (dict, list, tuple)) and depth >= DEEPEST:
        return _as_text(value)
    if isinstance(value, Mapping):
        return {storable(str(k)): _storable_tree(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable_tree(v, depth + 1) for v in value]
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return storable(str(value))


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (RecursionError, ValueError):
        return "(nested too deep to be kept)"


def printable(text: str, limit: int | None = None) -> str:
    """``text`` on one line with control, bidi and escape characters shown as escapes; cut to ``limit`` characters."""
    shown = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", storable(text))
    shown = shown.replace("\n", "\\n").replace("\t", " ")
    if limit is not None and len(shown) > limit:
        return shown[: limit - 1] + "…"
    return shown


def is_chinese(text: str) -> bool:
    """Whether Chinese characters make up at least a fifth of the letters of ``text``."""
    chinese = len(_CJK.findall(text))
    if not chinese:
        return False
    letters = sum(1 for c in text if c.isalpha())
    return chinese * 5 >= letters


def fold(text: str) -> str:
    """``text`` for comparison: Unicode NFKC, case folded, white space runs as one blank, ends trimmed."""
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
