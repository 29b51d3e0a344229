"""Actions as one JSON object ``{"tool": ..., "arguments": {...}}``, held to a JSON Schema where the engine can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dialoom.engine import Message, Response
from dialoom.protocol import (
    Action,
    Exchange,
    Form,
    NotAnAction,
    Tool,
    first_object,
    json_text,
    read_call,
)
from dialoom.protocols._forms import as_messages, words

_THOUGHT: Mapping[str, Any] = {"type": "string", "maxLength": 200}


class JsonProtocol:
    """Schema-constrained JSON. ``name`` and ``parameters`` are read as ``tool`` and ``arguments`` too."""

    name = "json"
    free_form = False

    def instructions(self, tools: Sequence[Tool], language: str, *, thought: bool = False) -> str:
        """A line that asks for the form, then one example a tool."""
        text = words(self.name, language)
        placeholder = text["thought"] if thought else ""
        lines = [self.render(Action(t.name, t.example, placeholder)) for t in tools]
        return "\n".join([text["head.thought" if thought else "head"], *lines])

    def form(self, tools: Sequence[Tool], *, thought: bool = False) -> Form:
        """The answer schema: one object, or one of several."""
        options = [_object(tool, thought) for tool in tools]
        return Form(options[0] if len(options) == 1 else {"anyOf": options})

    def parse(self, response: Response) -> Action | NotAnAction:
        """The first JSON object of the text."""
        found = first_object(response.text.strip())
        if isinstance(found, str):
            return NotAnAction(found)
        name = found.get("tool", found.get("name"))
        arguments = found.get("arguments", found.get("parameters"))
        return read_call(name, arguments, found.get("thought", ""))

    def render(self, action: Action) -> str:
        """The object as compact JSON, the thought first."""
        record: dict[str, Any] = {"thought": action.thought} if action.thought else {}
        return json_text({**record, "tool": action.tool, "arguments": action.arguments})

    def messages(self, exchanges: Sequence[Exchange], language: str) -> list[Message]:
        """Answer and result in turn."""
        return as_messages(exchanges, language, self.name)


def _object(tool: Tool, thought: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {"thought": _THOUGHT} if thought else {}
    properties |= {"tool": {"type": "string", "enum": [tool.name]}, "arguments": tool.parameters}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


PLUGIN = JsonProtocol()
