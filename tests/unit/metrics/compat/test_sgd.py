"""The official SGD evaluation, against its own numbers for a prediction folder with seeded errors."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dialoom import registry
from dialoom.formats.sgd import PLUGIN as SGD
from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import difflib_ratio
from dialoom.metrics.compat.sgd import frame_scores
from dialoom.predictions import Source
from dialoom.schema import Service, Slot
from support.shared import shared_path
from support.traces import frame, slot_values, turn_rows, turns_table

ALL = frozenset({"state", "intent", "requested_slots", "slot_spans"})
SETTINGS = [
    "exact",
    "exact_across_turn",
    "fuzzy",
    "fuzzy_across_turn",
    "fuzzy_levenshtein",
    "fuzzy_levenshtein_across_turn",
]


@pytest.fixture(scope="module")
def golden() -> ScoreInput:
    source = Source(shared_path("golden", "sgd", "p3"), shared_path("sgd", "test"))
    found = SGD.read(source)
    seen = json.loads(shared_path("golden", "sgd", "seen_services.json").read_text())
    return build(found.rows, found.schema, seen=frozenset(seen), whole_state=False)


def figure(scores: Any, collection: str, measure: str) -> float | None:
    if collection == "#ALL_SERVICES":
        found = scores[measure].overall
    elif collection.startswith("#"):
        found = scores[measure].by["services"][collection[1:].partition("_")[0].lower()]
    else:
        by = scores[measure].by
        found = by["service"].get(collection) or by["domain"].get(collection)
    return None if found is None else found.value


@pytest.mark.shared
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_collection_and_measure_equals_the_evaluator(golden: ScoreInput, setting: str) -> None:
    expected = json.loads(shared_path("golden", "sgd", "p3_metrics.json").read_text())["metrics"][setting]
    scores = registry.find("metrics", f"sgd_{setting}").score(golden, ALL)
    checked = 0
    for collection, measures in expected.items():
        for measure, value in measures.items():
            assert figure(scores, collection, measure) == pytest.approx(value, abs=1e-9), (collection, measure)
            checked += 1
    assert checked > 250


@pytest.mark.shared
def test_every_frame_equals_the_evaluator(golden: ScoreInput) -> None:
    scores = frame_scores(golden, difflib_ratio)
    exact = frame_scores(golden, None)
    columns = {
        "joint_goal_fuzzy": scores.values["joint_goal_accuracy"],
        "joint_goal_exact": exact.values["joint_goal_accuracy"],
        "avg_goal_fuzzy": scores.values["average_goal_accuracy"],
        "avg_goal_exact": exact.values["average_goal_accuracy"],
        "joint_cat": scores.values["joint_cat_accuracy"],
        "joint_noncat_fuzzy": scores.values["joint_noncat_accuracy"],
        "intent": scores.values["active_intent_accuracy"],
        "requested_f1": scores.values["requested_slots_f1"],
        "slot_tagging_f1": scores.values["slot_tagging_f1"],
    }
    where = {
        (golden.dialogue_ids[golden.dialogue[t]], int(golden.turn[t]), golden.services[s]): i
        for i, (t, s) in enumerate(zip(scores.turn, scores.service, strict=True))
    }
    with shared_path("golden", "sgd", "p3_frames.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(where) == 4021
    for row in rows:
        i = where[row["dialogue_id"], int(row["turn"]), row["service"]]
        for name, values in columns.items():
            if row[name] in ("", "NA", "nan"):
                assert np.isnan(values[i]), (row, name)
            else:
                assert values[i] == pytest.approx(float(row[name]), abs=1e-6), (row, name)


SCHEMA = {
    "Hotels_1": Service("Hotels_1", slots=(Slot("stars", is_categorical=True), Slot("city"), Slot("name"))),
    "Taxi_1": Service("Taxi_1", slots=(Slot("to"),)),
}


def joint(gold: Any, state: Any, measure: str = "joint_goal_accuracy", name: str = "sgd_fuzzy") -> float | None:
    rows = turn_rows("d", [{"gold": gold, "state": slot_values(state)}])
    data = build(turns_table(rows), SCHEMA)
    return figure(registry.find("metrics", name).score(data, ALL), "#ALL_SERVICES", measure)


def test_free_text_earns_its_similarity_and_the_best_form_counts() -> None:
    gold = [frame("Hotels_1", {"city": ["SF", "San Francisco"]}, "FindHotel")]
    assert joint(gold, {("Hotels_1", "city"): "san francisco"}) == 1.0
    assert joint(gold, {("Hotels_1", "city"): "san francisco"}, name="sgd_exact") == 0.0
    assert joint(gold, {("Hotels_1", "city"): "San Jose"}) == 0.48


def test_a_categorical_slot_takes_only_the_first_form() -> None:
    gold = [frame("Hotels_1", {"stars": ["4", "four"]}, "FindHotel")]
    assert joint(gold, {("Hotels_1", "stars"): "4"}) == 1.0
    assert joint(gold, {("Hotels_1", "stars"): "four"}) == 0.0


def test_slots_outside_the_schema_and_other_services_are_ignored() -> None:
    gold = [frame("Hotels_1", {"city": "Rome"}, "FindHotel")]
    state = {("Hotels_1", "city"): "Rome", ("Hotels_1", "pool"): "yes", ("Taxi_1", "to"): "Rome"}
    assert joint(gold, state) == 1.0
    assert joint(gold, {**state, ("Hotels_1", "name"): "Roma"}) == 0.0
    assert joint(gold, {**state, ("Hotels_1", "name"): "Roma"}, "average_goal_accuracy") == 1.0


def test_a_service_without_categorical_slots_has_no_categorical_figure() -> None:
    assert joint([frame("Taxi_1", {"to": "Rome"}, "GetTaxi")], {}, "joint_cat_accuracy") is None
    assert joint([frame("Taxi_1", {}, "GetTaxi")], {}, "average_goal_accuracy") is None


def test_across_turn_multiplies_the_frames_of_a_turn() -> None:
    gold = [frame("Taxi_1", {"to": "Rome"}, "GetTaxi"), frame("Hotels_1", {"city": "Rome"}, "FindHotel")]
    state = {("Taxi_1", "to"): "Rome"}
    assert joint(gold, state, name="sgd_exact") == 0.5
    assert joint(gold, state, name="sgd_exact_across_turn") == 0.0


def test_requested_slots_of_empty_frames_count_as_right() -> None:
    gold = [frame("Taxi_1", {}, "GetTaxi", requested=[]), frame("Hotels_1", {}, "NONE", requested=["name", "city"])]
    rows = turn_rows("d", [{"gold": gold, "state": [], "requested": [{"service": "Hotels_1", "slot": "name"}]}])
    scores = registry.find("metrics", "sgd_fuzzy").score(build(turns_table(rows), SCHEMA), ALL)
    assert figure(scores, "#ALL_SERVICES", "requested_slots_f1") == pytest.approx((1 + 2 / 3) / 2)
    assert figure(scores, "#ALL_SERVICES", "requested_slots_recall") == pytest.approx(0.75)


def test_an_output_that_is_not_declared_has_no_score() -> None:
    gold = [frame("Taxi_1", {"to": "Rome"}, "GetTaxi", requested=[])]
    rows = turn_rows("d", [{"gold": gold, "state": slot_values({("Taxi_1", "to"): "Rome"})}])
    scores = registry.find("metrics", "sgd_fuzzy").score(build(turns_table(rows), SCHEMA), frozenset({"state"}))
    values = {name: m.overall.value for name, m in scores.items()}
    assert Counter(v is None for v in values.values())[True] == 9
    assert values["joint_goal_accuracy"] == 1.0
    assert values["requested_slots_f1"] is None
    assert values["active_intent_accuracy"] is None
