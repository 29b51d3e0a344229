"""Actions as native tool calls (OpenAI style), for models and servers that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialoom.engine import Message, Response
from dialoom.protocol import Action, Exchange, Form, NotAnAction, Tool, read_call
from dialoom.protocols._forms import as_messages, words
from dialoom.protocols.json import PLUGIN as JSON


class ToolsProtocol:
    """Native tool calls. An answer without one is read as the JSON form, which some servers leave in the text."""

    name = "tools"
    free_form = False

    def instructions(self, tools: Sequence[Tool], language: str, *, thought: bool = False) -> str:
        """One line; the definitions travel beside the messages."""
        return words(self.name, language)["head"]

    def form(self, tools: Sequence[Tool], *, thought: bool = False) -> Form:
        """The function definitions."""
        return Form(tools=tuple(_definition(tool) for tool in tools))

    def parse(self, response: Response) -> Action | NotAnAction:
        """The first tool call, given as ``{"function": {"name", "arguments"}}`` or flat."""
        if not response.tool_calls:
            read = JSON.parse(response)
            return NotAnAction("no tool call") if isinstance(read, NotAnAction) else read
        call = response.tool_calls[0]
        function = call.get("function", call)
        if not isinstance(function, Mapping):
            return NotAnAction("a tool call without a function")
        return read_call(function.get("name"), function.get("arguments"), response.text)

    def render(self, action: Action) -> str:
        """The JSON form."""
        return JSON.render(action)

    def messages(self, exchanges: Sequence[Exchange], language: str) -> list[Message]:
        """Each call in the JSON form, and its result: chat messages have no place for calls."""
        told = [Exchange(JSON.render(e.action) if e.action else e.answer, e.action, e.observation) for e in exchanges]
        return as_messages(told, language, self.name)


def _definition(tool: Tool) -> Mapping[str, object]:
    function = {"name": tool.name, "description": tool.purpose, "parameters": tool.parameters}
    return {"type": "function", "function": function}


PLUGIN = ToolsProtocol()
