"""The parts of a baseline's prompts that do not change with the dialogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dialoom.engine import Message
from dialoom.methods.tracker.catalog import Catalog, SlotTable
from dialoom.methods.tracker.definitions import slots_text
from dialoom.methods.tracker.scene import PROMPTS as TRACKER_PROMPTS
from dialoom.prompt_files import entries, fill, read_prompts
from dialoom.protocol import ActionProtocol, Form, Tool
from dialoom.schema import Schema

PROMPTS = Path(__file__).parent / "prompts"
MAX_TEXT = 100
"""Characters of a value in an answer that a grammar holds."""


Question = tuple[Message, Form, SlotTable]
"""The system message that puts a question, the form of its answer, and the slots it is about."""


class Scene:
    """One set of candidate services in one language."""

    def __init__(self, schema: Schema, language: str, protocol: ActionProtocol) -> None:
        self.catalog = Catalog(schema)
        self.language = language
        self.words = entries(read_prompts(PROMPTS)[f"{language}/texts"])
        self.step_words = entries(read_prompts(TRACKER_PROMPTS)[f"{language}/step"])
        self.protocol = protocol
        self._kept: dict[object, Question] = {}

    def keep(self, key: object, make: Callable[[], Question]) -> Question:
        """The question under ``key``, made once."""
        question = self._kept.get(key)
        if question is None:
            question = self._kept[key] = make()
        return question

    def ask(self, key: str, definitions: str, tools: Sequence[Tool], table: SlotTable) -> Question:
        """The system message that puts the question ``key``, and the form of its answer."""
        form_text = self.protocol.instructions(tools, self.language)
        text = "\n\n".join([f"{self.words['task']}\n{self.words[key]}", form_text, definitions])
        return Message("system", text), self.protocol.form(tools), table

    def services(self) -> Question:
        """The question which services a turn is about."""
        return self.keep("services", self._services)

    def _services(self) -> Question:
        names = {"type": "string", "enum": list(self.catalog.services)}
        services = {"type": "array", "items": names, "maxItems": 4}
        tool = Tool("name_services", self.words["name_services"], objects(services=services), {"services": ["..."]})
        lines = [self.words["services.head"]]
        for service in self.catalog.services.values():
            about = service.description or service.name
            lines.append(fill(self.words["services.item"], name=service.name, description=about))
        return self.ask("services.ask", "\n".join(lines), [tool], self.catalog.slots)

    def state(self, services: tuple[str, ...]) -> Question:
        """The question for the whole state of ``services``."""
        return self.keep(services, lambda: self._state(services))

    def _state(self, services: tuple[str, ...]) -> Question:
        table = self.catalog.slots_of_services(services)
        text = {"type": "string", "maxLength": MAX_TEXT}
        name = {"type": "string", "enum": list(table.labels.values())} if table.labels else text
        pairs = {"type": "array", "items": objects(slot=name, value=text), "maxItems": max(1, len(table.labels))}
        example = {"slots": {"...": "..."}} if self.protocol.free_form else {"slots": [{"slot": "...", "value": "..."}]}
        tool = Tool("give_state", self.words["give_state"], objects(slots=pairs), example)
        return self.ask("state.ask", slots_text(self.catalog, table, self.step_words), [tool], table)


def objects(*, required: bool = True, **properties: object) -> dict[str, object]:
    """The JSON Schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required else [],
        "additionalProperties": False,
    }
