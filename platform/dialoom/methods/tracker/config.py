"""Settings of the tracker: the method as published, and every variant that a comparison needs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dialoom.method import MethodConfig


class TrackerConfig(MethodConfig, frozen=True):
    """The bounded tracker; the defaults are the method itself, each other value a named variant."""

    k_max: int = Field(6, ge=1, le=32)
    """Model calls a turn at most; at the bound the turn falls back to an empty delta."""
    protocol: str = "json"
    """How actions are written: ``json`` (held to a schema where the engine can), ``text`` (ReAct) or ``tools``."""
    thought: bool = False
    """Ask for a short thought in ``json`` too; ``text`` always has one."""
    loop: bool = True
    """False: one call for intents and one for slots, taken as they are; no search, no check."""
    validator: bool = True
    """False: the loop stays, but nothing is rejected."""
    action_rules: bool = True
    """Rules ``action.*``: order, form, repetition."""
    schema_rules: bool = True
    """Rules ``schema.*``: names, listed values, types; and values brought to the schema's own form."""
    coref_rules: bool = True
    """Rules ``coref.*``: no kinds for entities, copies equal their source."""
    ground_rules: bool = False
    """Rule ``ground.untraceable``: a free-text value must have been said or be in the state. Report it apart."""
    candidates: Literal["dialogue", "all"] = "dialogue"
    """Services a dialogue may be about: those it lists (all of the schema where it lists none), or always all."""
    slots: Literal["services", "intents"] = "services"
    """Slots shown and allowed: all of the confirmed intents' services, or those of the intents only."""
    deletes: bool = False
    """Admit ``[DELETE]`` as the value that removes a slot."""
    history: Literal["on_demand", "whole"] = "on_demand"
    """Earlier turns: searched by the model, or all of them in every prompt."""
    definitions: Literal["active", "whole"] = "active"
    """Schema in the prompt: what the step needs, or all intents and slots of the candidate services in every step."""
    predict: Literal["delta", "state"] = "delta"
    """What the model gives: changes, or the whole state of the active services."""
    gold_intents: bool = False
    """Intents are given from the annotation and not predicted."""
    teacher_forcing: bool = False
    """The state before each turn is the annotated one. Scores of such a run compare with nothing else."""
