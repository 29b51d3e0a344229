"""A method that does what no method should, as each dialogue's first turn says. For tests of the runtime."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from dialoom.dialogue import Dialogue
from dialoom.engine import Message
from dialoom.method import Context, MethodConfig, TurnTrace
from dialoom.schema import Schema
from dialoom.state import BeliefState, SlotRef

REF = SlotRef("s", "t0")


class Odd:
    """See the module."""

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        what: Any = dialogue.turns[0].text
        call = await ctx.generate("main", [Message("user", what)], turn=0)
        number: Any = 7
        nothing: Any = None
        match what:
            case "raise":
                raise ValueError("odd \ud800 \x1b[2J")
            case "exit":
                sys.exit(3)
            case "cancel":
                raise asyncio.CancelledError
            case "number as a value":
                ctx.turn(TurnTrace(0, delta={REF: number}))
            case "number as an output":
                ctx.turn(TurnTrace(0, output=number))
            case "turn that is none":
                ctx.turn(TurnTrace(99))
                ctx.turn(TurnTrace(nothing))
            case "no outcome":
                ctx.turn(TurnTrace(0, outcome=nothing))
            case "text as rules":
                call.rules = number
                ctx.turn(TurnTrace(0))
            case "step of no text":
                call.step = {"a": 1}  # type: ignore[assignment]
                ctx.turn(TurnTrace(0))
            case "call of no turn":
                await ctx.generate("main", [Message("user", "again")], turn=nothing)
            case "message of no text":
                await ctx.generate("main", [Message("user", number)], turn=0)
                ctx.turn(TurnTrace(0))
            case "unknown role":
                await ctx.generate("judge", [Message("user", what)], turn=0)
            case "broken text":
                ctx.turn(
                    TurnTrace(0, state=BeliefState({REF: "\ud800\0"}), output={"\udfff": "\ud800"}, error="\ud800")
                )
            case "huge number":
                ctx.turn(TurnTrace(0, output={"n": 10**30}))
            case "nothing":
                pass
            case _:
                ctx.turn(TurnTrace(0, state=BeliefState({REF: call.response.text})))


class OddPlugin:
    """The plug-in."""

    name = "odd"
    config = MethodConfig
    declares = frozenset({"state"})
    roles = ("main",)

    def create(self, config: Any, schema: Schema) -> Odd:
        return Odd()

    def prompts(self, config: Any) -> Mapping[str, str]:
        return {}


PLUGIN = OddPlugin()
