"""A scripted engine that says what tokens a prompt has: one for each character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dialoom.engine import Message
from dialoom.engines import scripted


class CountedPlugin(scripted.ScriptedPlugin):
    """The plug-in."""

    name = "counted"

    def prompt_tokens(self, config: Any) -> Callable[[Sequence[Message]], list[int]]:
        """Token ids of a prompt."""
        return lambda messages: [ord(c) for m in messages for c in m.content]


PLUGIN = CountedPlugin()
