"""The variant without a loop: one answer for intents, one for slots, both taken as they are."""

from __future__ import annotations

from collections.abc import Sequence

from dialoom.agent.loop import Judgement, Step, View
from dialoom.methods.tracker.catalog import IntentRef
from dialoom.methods.tracker.tools import CLASSIFY, RESOLVE
from dialoom.methods.tracker.turn import TurnEnvironment
from dialoom.methods.tracker.validator import Problem
from dialoom.protocol import Action, NotAnAction


class OnePass(TurnEnvironment):
    """An answer that cannot be used at the first step leaves the intents in force; at the second, an empty delta."""

    def view(self, steps: Sequence[Step]) -> View:
        """The step that is due; earlier answers are not shown."""
        return super().view(())

    def unreadable(self, problem: NotAnAction, steps: Sequence[Step]) -> Judgement:
        """Recorded, and passed over."""
        judgement = self._rejected([Problem("action.not_parsable", value=problem.what)], steps)
        self._carry_over()
        return judgement

    async def judge(self, action: Action, steps: Sequence[Step]) -> Judgement:
        """Intents at the first step and slots at the second; anything else is passed over."""
        due = CLASSIFY if self.result.confirmed is None else RESOLVE
        if action.tool == due:
            return self._classify(action, steps) if due == CLASSIFY else self._resolve(action, steps)
        self._carry_over()
        return Judgement("")

    def _carry_over(self) -> None:
        if self.result.confirmed is None:
            self.result.confirmed = tuple(IntentRef(s, i) for s, i in self._given.active.items())
