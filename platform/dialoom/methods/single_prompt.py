"""Baseline: one prompt with the whole schema and conversation that returns the whole state."""

from __future__ import annotations

from dialoom.methods._baseline import Asking, BaselinePlugin, Question
from dialoom.protocol import Action


class SinglePrompt(Asking):
    """One call a turn; an unusable answer leaves the state as it was."""

    @property
    def label(self) -> str:
        """The only step."""
        return "give_state"

    def question(self) -> Question:
        """All slots of all candidate services."""
        return self.scene.state(tuple(self.scene.catalog.services))

    def take(self, action: Action) -> bool:
        """The state as it is given."""
        self.write_state(action, tuple(self.scene.catalog.services))
        return True


PLUGIN = BaselinePlugin("single_prompt", SinglePrompt)
