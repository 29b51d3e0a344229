"""Schema variants: names both ways, and sensitivity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialoom.dialogue import Dialogue
from dialoom.errors import JobError, SchemaError
from dialoom.metrics._traces import read_inputs
from dialoom.reader import open_dialogues
from dialoom.schema import Intent, Schema, Service, Slot
from dialoom.schema_files import load_schema
from dialoom.sgdx import SchemaMapping, coefficient_of_variation, schema_sensitivity
from dialoom.state import BeliefState, SlotRef
from support.shared import shared_path
from support.traces import frame, slot_values, turn_rows, write_run


@pytest.mark.shared
@pytest.mark.parametrize("variant", ["v1", "v2", "v3", "v4"])
def test_real_dialogues_go_to_a_variant_and_back(variant: str) -> None:
    original = load_schema(shared_path("sgd", "test", "schema.json"))
    other = load_schema(shared_path("sgd_x", variant, "test", "schema.json"))
    mapping = SchemaMapping.between(original, other)
    path = shared_path("sgd", "test", "dialogues_014.json")
    dialogues = [d for d in open_dialogues("sgd", [path]) if isinstance(d, Dialogue)][:20]
    assert len(dialogues) == 20
    for dialogue in dialogues:
        there = mapping.dialogue(dialogue)
        assert set(there.services) <= set(other.services)
        for turn in there.turns:
            for f in turn.frames or ():
                service = other.services[f.service]
                assert set(f.slot_values) <= set(service.slot_by_name)
                assert f.active_intent in {"NONE", *service.intent_by_name}
        assert mapping.inverse.dialogue(there) == dialogue


def schema(name: str, service: str, *slots: str) -> Schema:
    return Schema(name, {service: Service(service, slots=tuple(map(Slot, slots)), intents=(Intent(f"Find{name}"),))})


ORIGINAL, VARIANT = schema("a", "Hotels_1", "city", "name"), schema("b", "Hotels_11", "town", "title")


def test_states_slots_and_intents_map_both_ways() -> None:
    mapping = SchemaMapping.between(ORIGINAL, VARIANT)
    state = BeliefState({SlotRef("Hotels_1", "city"): "Rome"})
    assert mapping.state(state) == BeliefState({SlotRef("Hotels_11", "town"): "Rome"})
    assert mapping.inverse.state(mapping.state(state)) == state
    assert mapping.intent("Hotels_1", "Finda") == "Findb"
    assert mapping.intent("Hotels_1", "NONE") == "NONE"


def test_schemas_that_do_not_line_up_are_refused() -> None:
    with pytest.raises(SchemaError, match="Hotels_11 does not have the slots"):
        SchemaMapping.between(ORIGINAL, schema("b", "Hotels_11", "town"))
    with pytest.raises(SchemaError, match="1 services against 0"):
        SchemaMapping.between(ORIGINAL, Schema("empty", {}))


def run(path: Path, schema: Schema, right: list[bool]) -> Path:
    ((service, definition),) = schema.services.items()
    slot = definition.slots[0].name
    rows: list[dict[str, Any]] = []
    for i, ok in enumerate(right):
        state = slot_values({(service, slot): "Rome" if ok else "12345"})
        rows += turn_rows(f"d{i}", [{"gold": [frame(service, {slot: "Rome"}, "Find")], "state": state}])
    return write_run(path, rows, schema=schema)


def test_sensitivity_is_the_mean_coefficient_of_variation(tmp_path: Path) -> None:
    runs = {
        "original": run(tmp_path / "o", ORIGINAL, [True, True, False, False]),
        "v1": run(tmp_path / "v", VARIANT, [True, False, False]),
    }
    found = schema_sensitivity(runs)
    assert [f.value for f in found.variants.values()] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert found.mean.value == pytest.approx(0.5)
    # Right and wrong once each: deviation sqrt(.5), mean .5; the other two frames do not vary.
    assert found.sensitivity.value == pytest.approx(np.sqrt(0.5) / 0.5 / 3)
    assert found.n_frames_left_out == 1
    assert set(found.by_service) == {"Hotels_1"}
    assert found.table().rows[0][0] == "original"


def test_a_method_that_does_not_care_has_no_sensitivity(tmp_path: Path) -> None:
    runs = {n: run(tmp_path / n, s, [True, False]) for n, s in (("o", ORIGINAL), ("v", VARIANT))}
    assert schema_sensitivity(runs).sensitivity.value == 0.0
    with pytest.raises(JobError, match="at least two"):
        schema_sensitivity({"o": runs["o"]})


def test_breakdowns_of_a_variant_go_under_the_original_names(tmp_path: Path) -> None:
    path = run(tmp_path / "v", VARIANT, [True])
    ((_, data, _),) = read_inputs(path)
    back = SchemaMapping.between(ORIGINAL, VARIANT).inverse.score_input(data)
    assert list(back.services) == ["Hotels_1"]
    assert list(back.slots) == [SlotRef("Hotels_1", "city")]
    assert back.exact_turns.all()


def test_frames_that_are_never_right_do_not_vary() -> None:
    values = np.array([[0.0, 1.0, 0.5], [0.0, 1.0, 1.0]])
    assert coefficient_of_variation(values) == pytest.approx([0.0, 0.0, np.sqrt(0.125) / 0.75])
