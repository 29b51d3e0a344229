"""Native tool calls in a model's text, in the Hermes form that Qwen and many others write.

``<tool_call>{"name": "f", "arguments": {...}}</tool_call>``, any number of them, with text around.
"""

from __future__ import annotations

import re

import orjson

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


def parse_tool_calls(text: str) -> tuple[tuple[dict[str, str], ...], str]:
    """``(calls, rest)``: each call as ``{"id", "name", "arguments"}`` (arguments as JSON text), and the text around.

    A call that cannot be read stays in the text as it is.
    """
    calls: list[dict[str, str]] = []

    def take(match: re.Match[str]) -> str:
        try:
            call = orjson.loads(match[1])
            name, arguments = call["name"], call.get("arguments", {})
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return match[0]
        if not isinstance(name, str) or not isinstance(arguments, (dict, str)):
            return match[0]
        shown = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        calls.append({"id": f"call_{len(calls)}", "name": name, "arguments": shown})
        return ""

    if "<tool_call>" not in text:
        return (), text
    rest = _CALL.sub(take, text)
    return tuple(calls), rest.strip() if calls else text
