"""What of a step does not change with the dialogue: rendered once for a set of services and a language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dialoom.engine import Message
from dialoom.methods.tracker.catalog import Catalog, IntentRef, SlotTable
from dialoom.methods.tracker.config import TrackerConfig
from dialoom.methods.tracker.definitions import intents_text, slots_text
from dialoom.methods.tracker.tools import CLASSIFY, RESOLVE, SEARCH, offered_tools
from dialoom.methods.tracker.validator import Rules, Validator
from dialoom.prompt_files import entries, fill, read_prompts
from dialoom.protocol import Action, ActionProtocol, Form
from dialoom.schema import Schema
from dialoom.state import BeliefState

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class StaticStep:
    """The part of a step's request that is the same for every dialogue with these services."""

    system: Message
    form: Form
    reminder: str
    """The form of the tool that is due, for an answer that was no action."""
    table: SlotTable


class Scene:
    """One set of candidate services in one language, under one configuration."""

    def __init__(self, schema: Schema, language: str, config: TrackerConfig, protocol: ActionProtocol) -> None:
        texts = read_prompts(PROMPTS)
        self.language = language
        self.catalog = Catalog(schema)
        self.validator = Validator(self.catalog, rules_of(config), deletes=config.deletes)
        self.step_texts = entries(texts[f"{language}/step"])
        self.feedback_texts = entries(texts[f"{language}/feedback"])
        self._tool_texts = entries(texts[f"{language}/tools"])
        self._system = texts[f"{language}/system"]
        self._config = config
        self._protocol = protocol
        self.tools = tuple(offered_tools(config, protocol, self._tool_texts, self.catalog, self.catalog.slots))
        self._head = self._render_head()
        self._steps: dict[object, StaticStep] = {}

    def intent_step(self) -> StaticStep:
        """The step that names intents. A grammar admits no search here: small models search and never come back."""
        step = self._steps.get("intents")
        if step is None:
            parts = [self._head, intents_text(self.catalog, self.step_texts)]
            if self._config.definitions == "whole":
                parts.append(slots_text(self.catalog, self.catalog.slots, self.step_texts))
            step = self._steps["intents"] = self._step(parts, [CLASSIFY], self.catalog.slots)
        return step

    def slot_step(
        self, confirmed: Sequence[IntentRef], *, can_search: bool, can_go_back: bool, can_copy: bool
    ) -> StaticStep:
        """The step that gives slots, for the services of the confirmed intents (all of them where none is).

        The tools that a grammar admits are those that make sense now: one search, where there are earlier turns; a
        copy where there is a state.
        """
        by_intent = self._config.slots == "intents"
        scope = tuple(sorted(confirmed)) if by_intent else self.catalog.services_of(confirmed)
        key = (scope, can_search, can_go_back, can_copy)
        step = self._steps.get(key)
        if step is None:
            table = self._table(confirmed)
            whole = self._config.definitions == "whole"
            shown = self.catalog.slots if whole else table
            parts = [self._head]
            if whole or can_go_back:
                parts.append(intents_text(self.catalog, self.step_texts))
            parts.append(slots_text(self.catalog, shown, self.step_texts))
            tools = [RESOLVE, *([SEARCH] if can_search else []), *([CLASSIFY] if can_go_back else [])]
            step = self._steps[key] = self._step(parts, tools, table, can_copy=can_copy)
        return step

    def _table(self, confirmed: Sequence[IntentRef]) -> SlotTable:
        catalog = self.catalog
        if not confirmed:
            return catalog.slots
        if self._config.slots == "intents":
            table = catalog.slots_of_intents(confirmed)
        else:
            table = catalog.slots_of_services(catalog.services_of(confirmed))
        if self._config.definitions == "whole":
            return SlotTable(table.slots, {ref: catalog.slots.labels[ref] for ref in table.slots})
        return table

    def _step(
        self, parts: Sequence[str], names: Sequence[str], table: SlotTable, *, can_copy: bool = False
    ) -> StaticStep:
        words, due = self._tool_texts, names[0]
        tools = offered_tools(self._config, self._protocol, words, self.catalog, table, can_copy=can_copy)
        form = self._protocol.form([tools[n] for n in names if n in tools], thought=self._config.thought)
        reminder = self._protocol.render(Action(due, tools[due].example))
        return StaticStep(Message("system", "\n\n".join(parts)), form, reminder, table)

    def _render_head(self) -> str:
        """The instructions that both steps share, so that an engine's prefix cache serves both."""
        config, words = self._config, self._tool_texts
        tools = offered_tools(config, self._protocol, words, self.catalog, self.catalog.slots)
        lines = [words["head"], *(f"- {tool.name}: {tool.purpose}" for tool in tools.values())]
        more = [words["more.dontcare"]] if self.catalog.dontcare else []
        if config.validator and config.coref_rules and config.loop:
            more.append(words["more.coref.map" if self._protocol.free_form else "more.coref"])
        if config.deletes:
            more.append(words["more.deletes"])
        shown = self._protocol.instructions(list(tools.values()), self.language, thought=config.thought)
        return fill(self._system, tools="\n".join(lines), more="\n".join([*more, ""]), form=shown)

    def record(self, state: BeliefState, active: Mapping[str, str]) -> str:
        """The state and the intents in force, as the changing part of a prompt begins."""
        words = self.step_texts
        by_service: dict[str, list[str]] = {}
        for ref, value in state.items():
            by_service.setdefault(ref.service, []).append(f"{ref.slot} = {value}")
        lines = [words["record"] if by_service else words["record.empty"]]
        for service, pairs in by_service.items():
            named = all(pair.startswith(f"{service}-") for pair in pairs)
            template = words["record.pairs" if named else "record.service"]
            lines.append(fill(template, service=service, pairs="; ".join(pairs)))
        labels = self.catalog.intent_labels
        names = [labels.get(IntentRef(s, i), i) for s, i in active.items()]
        lines.append(fill(words["active"], intents=", ".join(names)) if names else words["active.none"])
        return "\n".join(lines)


def rules_of(config: TrackerConfig) -> Rules:
    """The rule families that a configuration leaves on."""
    if not (config.validator and config.loop):
        return Rules(action=False, schema=False, coref=False, ground=False)
    return Rules(config.action_rules, config.schema_rules, config.coref_rules, config.ground_rules)
