"""The whole tracker on all public test dialogues, against states computed without any of its code."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dialoom import registry
from dialoom.dialogue import Dialogue
from dialoom.method import TurnTrace
from dialoom.outcome import Outcome
from dialoom.reach import NO_VALUE, REFORMED, REMOVED, unreachable
from dialoom.reader import open_dialogues
from dialoom.schema import Schema
from dialoom.schema_files import load_schema
from dialoom.state import SlotRef
from support.context import InProcess, scripted
from support.oracle import Oracle
from support.scripts import ERRORS, IN_SLOTS, Expected, write_answers
from support.shared import ROOT, shared_path

Traces = dict[tuple[str, int], TurnTrace]


@cache
def public(name: str) -> tuple[list[Dialogue], Schema]:
    """All test dialogues of a data set, and its schema."""
    if name == "multiwoz":
        folder, schema = shared_path("multiwoz", "mwz21", "test"), ROOT / "schemas" / "multiwoz.yaml"
    else:
        folder = shared_path("sgd", "test")
        schema = folder / "schema.json"
    records = list(open_dialogues(name, [str(folder)], {}))
    dialogues = [d for d in records if isinstance(d, Dialogue)]
    assert len(dialogues) == len(records) == {"multiwoz": 1000, "sgd": 1715}[name]
    return dialogues, load_schema(schema)


def track(dialogues: list[Dialogue], schema: Schema, answers: Path, **settings: Any) -> Traces:
    """Run the tracker on scripted answers."""
    plugin = registry.find("methods", "tracker")
    tracker = plugin.create(plugin.config(**settings), schema)

    async def run() -> Traces:
        engine = await scripted(answers)
        traces: Traces = {}
        for dialogue in dialogues:
            context = InProcess(dialogue, schema, engine)
            await tracker.run(dialogue, context)
            traces |= {(dialogue.dialogue_id, trace.turn): trace for trace in context.traces}
        return traces

    return asyncio.run(run())


def state_of(trace: TurnTrace) -> dict[tuple[str, str], str]:
    assert trace.state is not None
    return {tuple(ref): value for ref, value in trace.state.items()}  # type: ignore[misc]


def fired_of(trace: TurnTrace) -> list[tuple[str, int]]:
    return sorted((f.rule, f.call) for f in trace.fired)


def assert_as_expected(traces: Traces, expected: list[Expected]) -> None:
    assert len(traces) == len(expected)
    for turn in expected:
        trace = traces[turn.dialogue_id, turn.turn]
        at = (turn.dialogue_id, turn.turn)
        assert (at, state_of(trace)) == (at, turn.state)
        assert (at, dict(trace.delta)) == (at, {SlotRef(*k): v for k, v in turn.delta.items()})
        assert (at, fired_of(trace)) == (at, sorted(turn.fired))
        assert (at, dict(trace.active_intents)) == (at, turn.active)
        assert trace.outcome is (Outcome.CORRECTED if turn.fired else Outcome.ACCEPTED)


@pytest.mark.shared
@pytest.mark.parametrize("protocol", ["json", "text"])
@pytest.mark.parametrize("name", ["multiwoz", "sgd"])
def test_states_equal_the_oracle_turn_by_turn(name: str, protocol: str, tmp_path: Path) -> None:
    dialogues, schema = public(name)
    answers = tmp_path / "answers.jsonl"
    expected = write_answers(answers, dialogues, schema, protocol=protocol)
    assert_as_expected(track(dialogues, schema, answers, protocol=protocol), expected)
    assert sum(bool(t.delta) for t in expected) > {"multiwoz": 4500, "sgd": 5000}[name]


@pytest.mark.shared
@pytest.mark.parametrize("protocol", ["json", "text"])
@pytest.mark.parametrize("name", ["multiwoz", "sgd"])
def test_seeded_errors_fire_their_rules_and_end_at_the_oracle(name: str, protocol: str, tmp_path: Path) -> None:
    dialogues, schema = public(name)
    clean = write_answers(tmp_path / "clean.jsonl", dialogues, schema, protocol=protocol)
    answers = tmp_path / "answers.jsonl"
    expected = write_answers(answers, dialogues, schema, protocol=protocol, errors=ERRORS)
    assert_as_expected(track(dialogues, schema, answers, protocol=protocol), expected)
    assert [t.state for t in expected] == [t.state for t in clean]

    rules = Counter(rule for t in expected for rule, _ in t.fired)
    seeded = {"action.order", "action.not_parsable", "action.unknown_tool", "action.repeated", "schema.unknown_intent"}
    seeded |= {"schema.unknown_slot", "schema.categorical", "coref.kind", "action.intent_not_confirmed"}
    seeded |= {"schema.type"} if name == "multiwoz" else set()
    assert all(rules[rule] > 100 for rule in seeded), rules


@pytest.mark.shared
@pytest.mark.parametrize("name", ["multiwoz", "sgd"])
def test_without_the_validator_seeded_errors_stay_in_the_state(name: str, tmp_path: Path) -> None:
    dialogues, schema = public(name)
    answers = tmp_path / "answers.jsonl"
    expected = write_answers(answers, dialogues, schema, errors=("broken", "unknown_tool", *IN_SLOTS))
    traces = track(dialogues, schema, answers, validator=False)
    wrong = [t for t in expected if state_of(traces[t.dialogue_id, t.turn]) != t.state]
    assert len(wrong) > len(expected) / 2
    first_errors = {t.dialogue_id: t for t in reversed(expected) if t.seeded}
    assert len(first_errors) > len(dialogues) * 0.8
    for turn in first_errors.values():
        assert state_of(traces[turn.dialogue_id, turn.turn]) != turn.state
    assert {f.rule for t in traces.values() for f in t.fired} <= {"action.not_parsable", "action.unknown_tool"}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["multiwoz", "sgd"])
def test_all_gold_out_of_reach_is_listed(name: str, tmp_path: Path) -> None:
    dialogues, schema = public(name)
    listed = list(unreachable(dialogues, schema))
    expected = write_answers(tmp_path / "answers.jsonl", dialogues, schema)
    by_rule = {(e.dialogue_id, e.turn, *key, value, rule) for e in expected for key, value, rule in e.rejected_gold}
    beyond_rules = {REMOVED, NO_VALUE, REFORMED}
    assert {tuple(vars_of(u)) for u in listed if u.rule not in beyond_rules} == by_rule

    missing = {(u.dialogue_id, u.service, u.slot) for u in listed}
    states = {(e.dialogue_id, e.turn): e.state for e in expected}
    for dialogue in dialogues:
        oracle = Oracle(schema, dialogue.services or schema.services)
        for index, turn in enumerate(dialogue.turns):
            for frame in turn.frames or ():
                held = states[dialogue.dialogue_id, index]
                for slot in oracle.services[frame.service].slots:
                    value, gold = held.get((frame.service, slot.name)), frame.slot_values.get(slot.name, ())
                    if value not in gold and (value is not None or gold):
                        assert (dialogue.dialogue_id, frame.service, slot.name) in missing


def vars_of(entry: Any) -> list[object]:
    return [entry.dialogue_id, entry.turn, entry.service, entry.slot, entry.value, entry.rule]
