"""A method that asks for vectors: every turn's slot is the one whose name is nearest to what was said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dialoom.dialogue import Dialogue, Speaker
from dialoom.engine import Message
from dialoom.method import Context, MethodConfig, TurnTrace
from dialoom.schema import Schema
from dialoom.state import BeliefState, SlotRef

NAMES = ("hello there", "good bye", "and more")


class Near:
    """See the module."""

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        for index, turn in enumerate(dialogue.turns):
            if turn.speaker is Speaker.USER:
                said, *names = await ctx.embed("main", [turn.text, *NAMES], turn=index)
                near = [sum(a * b for a, b in zip(said, name, strict=True)) for name in names]
                call = await ctx.generate("main", [Message("user", f"{turn.text} {near!r}")], turn=index)
                ctx.turn(TurnTrace(index, state=BeliefState({SlotRef("s", "t0"): call.response.text})))


class NearPlugin:
    """The plug-in."""

    name = "near"
    config = MethodConfig
    declares = frozenset({"state"})
    roles = ("main",)

    def create(self, config: Any, schema: Schema) -> Near:
        return Near()

    def prompts(self, config: Any) -> Mapping[str, str]:
        return {}


PLUGIN = NearPlugin()
