"""Baseline in function-call style, one function a service (after FnCTOD, Li et al., ACL 2024).

One call a turn: the model calls the function of the service it hears, with the slots that the turn sets as arguments,
or ``no_change``. Arguments outside a slot's list are dropped; everything else is taken as it is. With ``protocol:
tools`` the calls are native, else they are written in the protocol's form.
"""

from __future__ import annotations

import re

from dialoom.engine import Message
from dialoom.methods._baseline import Asking, BaselinePlugin, Scene
from dialoom.methods._baseline.scene import MAX_TEXT, Question, objects
from dialoom.methods.tracker.definitions import slots_text
from dialoom.methods.tracker.forms import listed_form
from dialoom.methods.tracker.proposal import usable_slots
from dialoom.methods.tracker.referents import is_dontcare
from dialoom.methods.tracker.validator import as_proposed
from dialoom.prompt_files import fill
from dialoom.protocol import Action, Tool
from dialoom.schema import DONTCARE, Service, Slot
from dialoom.state import BeliefState

NO_CHANGE = "no_change"


class FunctionCall(Asking):
    """One call a turn; an unusable answer, or a function that does not exist, leaves the state as it was."""

    def __init__(self, scene: Scene, message: Message, state: BeliefState) -> None:
        super().__init__(scene, message, state)
        self._names = function_names(scene)

    @property
    def label(self) -> str:
        """The only step."""
        return "call_function"

    def question(self) -> Question:
        """All functions, with the slots of their services as parameters."""
        return self.scene.keep(NO_CHANGE, lambda: _question(self.scene, self._names))

    def take(self, action: Action) -> bool:
        """The arguments as changes of the function's service."""
        service = next((s for name, s in self._names.items() if name == action.tool), None)
        if action.tool == NO_CHANGE:
            self.write_delta({})
            return True
        if service is None:
            return False
        table = self.scene.catalog.slots_of_services([service])
        values = as_proposed(usable_slots(action.arguments), table, table)
        self.write_delta({r: v for r, v in values.items() if r in table.slots and _allowed(table.slots[r], v)})
        return True


def function_names(scene: Scene) -> dict[str, str]:
    """Function name to service: names that every endpoint accepts, numbered where a service has no Latin name."""
    names: dict[str, str] = {}
    for number, service in enumerate(scene.catalog.services):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", service)[:48].strip("_")
        name = f"set_{plain}" if plain and service.isascii() else f"set_service_{number + 1}"
        names[name if name not in names else f"{name}_{number + 1}"] = service
    return names


def _question(scene: Scene, names: dict[str, str]) -> Question:
    tools = [_function(scene.catalog.services[service], name) for name, service in names.items()]
    tools.append(Tool(NO_CHANGE, scene.words[NO_CHANGE], objects(), {}))
    lines = [scene.words["function.head"]]
    lines += [fill(scene.words["function.item"], name=t.name, description=t.purpose) for t in tools]
    slots = [slots_text(scene.catalog, scene.catalog.slots_of_services([s]), scene.step_words) for s in names.values()]
    return scene.ask("function.ask", "\n".join([*lines, *slots]), tools, scene.catalog.slots)


def _function(service: Service, name: str) -> Tool:
    parameters = objects(required=False, **{slot.name: _parameter(slot) for slot in service.slots})
    return Tool(name, service.description or service.name, parameters, {"...": "..."})


def _parameter(slot: Slot) -> dict[str, object]:
    if slot.is_categorical:
        return {"type": "string", "enum": [*slot.values, DONTCARE], "description": slot.description}
    return {"type": "string", "maxLength": MAX_TEXT, "description": slot.description}


def _allowed(slot: Slot, value: str) -> bool:
    return not slot.is_categorical or is_dontcare(value) or listed_form(slot.values, value) is not None


PLUGIN = BaselinePlugin("fnctod", FunctionCall)
