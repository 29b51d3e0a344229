"""A schema as prompts show it: intents, and slots with their values or the form of them."""

from __future__ import annotations

from collections.abc import Mapping

from dialoom.methods.tracker.catalog import Catalog, SlotTable
from dialoom.prompt_files import fill
from dialoom.schema import Slot

Words = Mapping[str, str]
"""The texts of ``prompts/<language>/step.txt``."""


def intents_text(catalog: Catalog, words: Words) -> str:
    """Every intent with its description, or that of its service."""
    lines = [words["intents"]]
    for ref, label in catalog.intent_labels.items():
        description = catalog.intents[ref].description or catalog.services[ref.service].description
        lines.append(fill(words["intent"], label=label, description=description or ref.service))
    return "\n".join(lines)


def slots_text(catalog: Catalog, table: SlotTable, words: Words) -> str:
    """The slots of ``table`` by service."""
    lines, service = list[str](), ""
    for ref, slot in table.slots.items():
        if ref.service != service:
            service = ref.service
            description = catalog.services[service].description
            template = words["slots" if description else "slots.plain"]
            lines.append(fill(template, service=service, description=description))
        values = values_text(slot, words)
        lines.append(fill(words["slot"], label=table.labels[ref], description=slot.description, values=values))
    return "\n".join(lines)


def values_text(slot: Slot, words: Words) -> str:
    """What a value of ``slot`` may be; empty for free text."""
    typed = words.get(f"type.{slot.type.value}", "")
    shown = " | ".join(slot.values) if slot.is_categorical else typed
    return f" {fill(words['values'], values=shown)}" if shown else ""
