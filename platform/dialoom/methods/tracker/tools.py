"""The closed set of tools, as a model sees them for one set of services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dialoom.methods.tracker.catalog import Catalog, SlotTable
from dialoom.methods.tracker.config import TrackerConfig
from dialoom.protocol import ActionProtocol, Tool

CLASSIFY = "classify_intent"
RESOLVE = "resolve_slots"
SEARCH = "search_history"

MAX_INTENTS = 4
MAX_SLOTS = 8
"""Pairs of a change in an answer that a grammar holds: no turn of the training data sets more than five, and a small
model that begins to repeat itself goes on to the last."""
MAX_STATE_SLOTS = 16
MAX_TEXT = 64
"""Characters of a value or query in an answer that a grammar holds; the longest of the training data has 40."""


def offered_tools(
    config: TrackerConfig,
    protocol: ActionProtocol,
    words: Mapping[str, str],
    catalog: Catalog,
    table: SlotTable,
    *,
    can_copy: bool = False,
) -> dict[str, Tool]:
    """The tools of a configuration by name, with intents and slots listed by their labels."""
    tools = {} if config.gold_intents else {CLASSIFY: _classify(words, catalog)}
    tools[RESOLVE] = _resolve(config, protocol, words, table, can_copy)
    if config.history == "on_demand" and config.loop:
        query = _object({"query": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}})
        tools[SEARCH] = Tool(SEARCH, words[SEARCH], query, {"query": "..."})
    return tools


def _classify(words: Mapping[str, str], catalog: Catalog) -> Tool:
    names = {"type": "string", "enum": [*catalog.intent_labels.values(), "none"]}
    intents = {"type": "array", "items": names, "minItems": 1, "maxItems": MAX_INTENTS}
    return Tool(CLASSIFY, words[CLASSIFY], _object({"intents": intents}), {"intents": ["..."]})


def _resolve(
    config: TrackerConfig, protocol: ActionProtocol, words: Mapping[str, str], table: SlotTable, can_copy: bool
) -> Tool:
    """Slots as a list of pairs where a grammar holds the answer: a small model need not fill every slot."""
    text = {"type": "string", "maxLength": MAX_TEXT}
    name = {"type": "string", "enum": list(table.labels.values())} if table.labels else text
    pair = _object({"slot": name, "value": text})
    if can_copy and config.coref_rules and config.validator and config.loop:
        pair = {**pair, "properties": {**pair["properties"], "from": text}}
    limit = max(MAX_STATE_SLOTS, len(table.labels)) if config.predict == "state" else MAX_SLOTS
    parameters = _object({"slots": {"type": "array", "items": pair, "maxItems": limit}})
    example: dict[str, Any] = {"slots": [{"slot": "...", "value": "..."}]}
    if protocol.free_form:
        example = {"slots": {"...": "..."}}
    purpose = words[f"{RESOLVE}.state" if config.predict == "state" else RESOLVE]
    if not config.gold_intents:
        purpose = f"{purpose} {words[f'{RESOLVE}.after']}"
    return Tool(RESOLVE, purpose, parameters, example)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
