"""Files of scripted answers: JSON lines, one turn a line.

``{"dialogue_id": "d1", "turn": 2, "answers": ["first call", "second call"]}``; call ``k`` of the turn takes
``answers[k]``. The optional fields ``method``, ``cell`` and ``trial`` restrict a line to those units; the line with the
most of them that fits a call is taken. An answer is a raw text, or an object with ``text`` and any of ``reasoning``,
``finish_reason``, ``tool_calls``, ``logprobs``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dialoom.engine import Address
from dialoom.errors import EngineError, EngineRefused


class Answer(BaseModel):
    """One scripted answer with more than its text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    reasoning: str = ""
    finish_reason: str = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[tuple[str, float], ...] = ()


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    dialogue_id: str
    turn: int
    answers: tuple[str | Answer, ...]
    method: str | None = None
    cell: str | None = None
    trial: int | None = None


_LINE: TypeAdapter[_Line] = TypeAdapter(_Line)
_ADDRESS_FIELDS = ("method", "cell", "trial")


@dataclass(frozen=True, slots=True)
class Script:
    """All answers of a file, by dialogue and turn: ``plain`` the lines for every unit, ``restricted`` the others."""

    path: str
    plain: Mapping[tuple[str, int], Sequence[str | Answer]]
    restricted: Mapping[tuple[str, int], Sequence[tuple[Mapping[str, str | int], Sequence[str | Answer]]]] = field(
        default_factory=dict
    )

    def answer(self, address: Address) -> str | Answer:
        """The answer at ``address``. Raises EngineError where the script has none."""
        key = (address.dialogue_id, address.turn)
        answers = self._restricted(key, address) if self.restricted else None
        if answers is None:
            answers = self.plain.get(key)
        if answers is not None and 0 <= address.call < len(answers):
            return answers[address.call]
        place = f"dialogue {address.dialogue_id}, turn {address.turn}, call {address.call}"
        if any(address[3:]):
            place += f" (method {address.method}, cell '{address.cell}', trial {address.trial})"
        had = "no line for this turn" if answers is None else f"{len(answers)} answers for this turn"
        raise EngineError(f"the script has {had}", where=f"{self.path}: {place}", hint="Add the answer to the script.")

    def _restricted(self, key: tuple[str, int], address: Address) -> Sequence[str | Answer] | None:
        fits = [
            (len(only), answers)
            for only, answers in self.restricted.get(key, ())
            if all(getattr(address, name) == value for name, value in only.items())
        ]
        return max(fits, key=lambda f: f[0])[1] if fits else None


def load_script(path: Path) -> Script:
    """The script at ``path``. Raises EngineRefused with file, line and field where it cannot be used."""
    plain: dict[tuple[str, int], Sequence[str | Answer]] = {}
    restricted: dict[tuple[str, int], list[tuple[Mapping[str, str | int], Sequence[str | Answer]]]] = {}
    seen: dict[tuple[str | int | None, ...], int] = {}
    try:
        with path.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                if not raw.strip():
                    continue
                line = _parsed(raw, where=f"{path}:{number}")
                key = (line.dialogue_id, line.turn)
                only: dict[str, str | int] = {n: v for n in _ADDRESS_FIELDS if (v := getattr(line, n)) is not None}
                first = seen.setdefault((*key, line.method, line.cell, line.trial), number)
                if first != number:
                    raise EngineRefused(
                        f"dialogue {line.dialogue_id}, turn {line.turn} was already given in line {first}",
                        where=f"{path}:{number}",
                        hint="Keep one line a turn; method, cell and trial tell lines of one turn apart.",
                    )
                if only:
                    restricted.setdefault(key, []).append((only, line.answers))
                else:
                    plain[key] = line.answers
    except OSError as error:
        raise EngineRefused(
            f"cannot read the script: {error.strerror}", where=str(path), hint="Check the path under 'answers'."
        ) from error
    return Script(str(path), plain, restricted)


def _parsed(raw: bytes, where: str) -> _Line:
    try:
        return _LINE.validate_python(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise EngineRefused(f"not JSON: {error}", where=where, hint="Write one JSON object a line.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "line"
        hint = 'A line is {"dialogue_id": text, "turn": number, "answers": [text, ...]}.'
        raise EngineRefused(f"{place}: {first['msg']}", where=where, hint=hint) from error


def file_digest(path: Path) -> str:
    """Hex digest (32 characters) of a file's bytes. Raises EngineRefused where it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        what = f"cannot read the file: {error.strerror}"
        raise EngineRefused(what, where=str(path), hint="Check the path.") from error
    return digest.hexdigest()
