"""Baseline in the style of schema-guided single-return prompting: two calls a turn, no loop, no check.

First the services of the turn, then one prompt with all their slots that returns the values at once, in any words,
``dontcare`` included. Compared with in ReacTOD (arXiv 2605.19077) as SRP.
"""

from __future__ import annotations

from dialoom.engine import Message
from dialoom.methods._baseline import Asking, BaselinePlugin, Question, Scene
from dialoom.methods.tracker.catalog import name_key
from dialoom.protocol import Action
from dialoom.state import BeliefState


class Srp(Asking):
    """Services, then their state. An unusable first answer means no service, and the turn changes nothing."""

    calls = 2

    def __init__(self, scene: Scene, message: Message, state: BeliefState) -> None:
        super().__init__(scene, message, state)
        self._services: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        """Services first."""
        return "name_services" if self._services is None else "give_state"

    def question(self) -> Question:
        """Which services; then all slots of them."""
        return self.scene.services() if self._services is None else self.scene.state(self._services)

    def take(self, action: Action) -> bool:
        """The services named; then the state of them."""
        if self._services is not None:
            self.write_state(action, self._services)
            return True
        given = action.arguments.get("services")
        names = {name_key(n) for n in (given if isinstance(given, list) else [given]) if isinstance(n, str)}
        self._services = tuple(s for s in self.scene.catalog.services if name_key(s) in names)
        return not self._services


PLUGIN = BaselinePlugin("srp", Srp)
