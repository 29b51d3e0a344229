"""Action protocols: how tools are offered to a model, and how its answer is read as one action.

The plug-ins live in ``dialoom.protocols``: compact text, JSON constrained by a schema, native tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from math import isfinite
from typing import Any, Protocol

import orjson

from dialoom.engine import Message, Response
from dialoom.text import storable

MAX_DEPTH = 8
"""Levels of objects and arrays an action may have."""

_DECODER = JSONDecoder()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a model sees it.

    ``parameters`` is the JSON Schema of its arguments (an object, every string and array bounded), ``example`` one set
    of arguments in the shape wanted, made of placeholders only.
    """

    name: str
    purpose: str
    parameters: Mapping[str, Any]
    example: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call, as read from an answer; nothing about it has been checked yet."""

    tool: str
    arguments: Mapping[str, Any]
    thought: str = ""

    def record(self) -> dict[str, Any]:
        """For the calls table."""
        record: dict[str, Any] = {"tool": self.tool, "arguments": self.arguments}
        if self.thought:
            record["thought"] = self.thought
        return record


@dataclass(frozen=True, slots=True)
class NotAnAction:
    """An answer that cannot be read as an action. ``what`` is a short reason in English."""

    what: str


@dataclass(frozen=True, slots=True)
class Form:
    """What a request carries so that the answer comes in the protocol's form."""

    answer_schema: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One step that is over: the raw answer, the action read from it (if any), and what came of it."""

    answer: str
    action: Action | None
    observation: str


class ActionProtocol(Protocol):
    """One way to state actions.

    ``free_form`` is true where no grammar holds the answer, so that maps with any keys are fine as arguments.
    """

    name: str
    free_form: bool

    def instructions(self, tools: Sequence[Tool], language: str, *, thought: bool = False) -> str:
        """The part of a system prompt that shows the form, with one example a tool."""

    def form(self, tools: Sequence[Tool], *, thought: bool = False) -> Form:
        """What a request in which ``tools`` may be used carries. Pure; make it once and keep it."""

    def parse(self, response: Response) -> Action | NotAnAction:
        """The action of an answer; never raises, whatever the text. Of several actions the first counts."""

    def render(self, action: Action) -> str:
        """The answer text that :meth:`parse` reads as ``action``."""

    def messages(self, exchanges: Sequence[Exchange], language: str) -> list[Message]:
        """The steps so far as chat messages."""


def first_object(text: str) -> dict[str, Any] | str:
    """The first JSON object in ``text`` (alone, in a code fence, or among other words), or why there is none.

    Strings in it can be stored, integers fit 64 bits, and it is nested at most :data:`MAX_DEPTH` deep.
    """
    if text.startswith("{") and text.endswith("}"):
        try:
            loaded = orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
        else:
            return _held(loaded)
    start = text.find("{")
    if start < 0:
        return "no JSON object"
    try:
        loaded, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return "broken JSON"
    held = _held(loaded)
    return held if isinstance(held, str) else {storable(k): _storable(v) for k, v in held.items()}


def _held(loaded: Any) -> dict[str, Any] | str:
    if not isinstance(loaded, dict):
        return "no JSON object"
    return loaded if _shallow(loaded, MAX_DEPTH) else "too deeply nested JSON"


def _shallow(value: dict[str, Any] | list[Any], depth: int) -> bool:
    """Whether ``value`` holds at most ``depth`` levels, its own included."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)) and (depth <= 1 or not _shallow(item, depth - 1)):
            return False
    return True


def _storable(value: Any) -> Any:
    """A JSON tree as it can be stored: the decoder lets lone surrogates, NaN and endless numbers pass."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _storable(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_storable(v) for v in value]
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


def json_text(value: Any) -> str:
    """Compact JSON, as models write it."""
    return orjson.dumps(value).decode()


def read_call(name: Any, arguments: Any, thought: Any = "") -> Action | NotAnAction:
    """An action of a tool name and arguments; arguments given as JSON text are read first."""
    if not isinstance(name, str) or not name.strip():
        return NotAnAction("no tool is named")
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        arguments = first_object(arguments.strip()) if arguments.strip() else {}
        if isinstance(arguments, str):
            return NotAnAction(f"{arguments} in the arguments")
    if not isinstance(arguments, dict):
        return NotAnAction("the arguments are not an object")
    return Action(name.strip(), arguments, thought.strip() if isinstance(thought, str) else "")
