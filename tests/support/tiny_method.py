"""The smallest real method: so many calls a user turn, the state collects their answers. For tests of the runtime."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from dialoom.dialogue import Dialogue, Speaker
from dialoom.engine import Message, Request
from dialoom.errors import PromptTooLong, RequestRefused
from dialoom.method import Context, MethodConfig, TurnTrace
from dialoom.outcome import Outcome
from dialoom.schema import Schema
from dialoom.state import BeliefState, SlotRef


class TinyConfig(MethodConfig, frozen=True):
    """Settings."""

    calls: int = 2
    """Calls a turn."""
    poison: str = ""
    """A dialogue whose text holds this makes the method raise."""
    deadly: str = ""
    """A dialogue whose text holds this ends the worker's process."""
    falls_back: bool = False
    """A call that is refused makes its turn a fallback; else it ends the unit."""
    blocking: str = ""
    """A dialogue whose text holds this holds up the worker's process for good."""


class Tiny:
    """See the module."""

    def __init__(self, config: TinyConfig) -> None:
        self._config = config

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        state = BeliefState()
        for index, turn in enumerate(dialogue.turns):
            if turn.speaker is not Speaker.USER:
                continue
            if self._config.poison and self._config.poison in turn.text:
                raise ValueError("poison")
            if self._config.deadly and self._config.deadly in turn.text:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._config.blocking and self._config.blocking in turn.text:
                time.sleep(1e6)  # noqa: ASYNC251 - just that is what it is about
            outcome = Outcome.ACCEPTED
            text = ""
            try:
                for k in range(self._config.calls):
                    messages = [
                        Message("system", "You answer."),
                        Message("user", f"{dialogue.dialogue_id} {index} {k} {turn.text}"),
                    ]
                    call = await ctx.generate("main", messages, turn=index)
                    call.step, call.action, text = "answer", {"say": call.response.text}, call.response.text
            except PromptTooLong:
                outcome = Outcome.PROMPT_TOO_LONG
            except RequestRefused:
                if not self._config.falls_back:
                    raise
                outcome = Outcome.FALLBACK
            delta = {SlotRef("s", f"t{index}"): text}
            state = state.upsert(delta)
            ctx.turn(TurnTrace(index, outcome=outcome, state=state, delta=delta))


class TinyPlugin:
    """The plug-in."""

    name = "tiny"
    config = TinyConfig
    declares = frozenset({"state"})
    roles = ("main",)

    def create(self, config: Any, schema: Schema) -> Tiny:
        return Tiny(config)

    def prompts(self, config: Any) -> Mapping[str, str]:
        return {"system.txt": "You answer."}


PLUGIN = TinyPlugin()


def answer(request: Request) -> str:
    """A scripted rule: the last word of the last message, and its length."""
    text = request.messages[-1].content
    return f"{len(text)}:{text[-12:]}"
