"""mwzeval, TRADE / T5DST and the conventions of IC-DST and FnCTOD, against the evaluators' numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialoom import registry
from dialoom.metric import Measured
from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.label_fix import fix_label
from dialoom.metrics.compat.multiwoz import TRADE_SLOTS, trade_slot
from dialoom.metrics.compat.mwzeval import normal_slot, normal_value
from dialoom.predictions import Source, read_predictions
from dialoom.state import SlotRef
from support.shared import shared_path
from support.tracking_oracle import Corpus, score_input

STATE = frozenset({"state"})


def scored(name: str, data: ScoreInput) -> dict[str, Measured]:
    found: dict[str, Measured] = registry.find("metrics", name).score(data, STATE)
    return found


@pytest.mark.shared
def test_normalisation_equals_the_package() -> None:
    pairs = json.loads(shared_path("golden", "mwz", "normalisation_pairs.json").read_text())
    ours = [(normal_slot(p["slot"]), normal_value(normal_slot(p["slot"]), p["value"])) for p in pairs]
    assert ours == [(p["slot_norm"], p["value_norm"]) for p in pairs]


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("5:15 pm", "17:15"),
        ("17:15 pm", "29:15"),
        ("12 p.m.", "24:00"),
        ("by 1700", "17:00"),
        ("After 9:30", "09:30"),
        ("9", "09:00"),
        ("noon.", "noon"),
        ("pm", "00:00"),
        ("10 : 30", "10:30"),
    ],
)
def test_times_of_the_package(value: str, time: str) -> None:
    assert normal_value("leave", value) == time
    assert normal_value("booktime", value) == value


@pytest.mark.shared
@pytest.mark.parametrize("system", ["mintl", "edge"])
def test_mwzeval_equals_the_package(system: str) -> None:
    expected = json.loads(shared_path("golden", "mwz", "metrics.json").read_text())["systems"][system]["official"]
    folder = shared_path("golden", "mwz")
    found = read_predictions(Source(folder / f"pred_{system}.json", folder / "gold.json"))
    assert found.format == "mwzeval"
    scores = scored("mwzeval", build(found.rows, whole_state=True))
    values = {name: m.overall.value for name, m in scores.items()}
    assert values == {
        "joint_accuracy": pytest.approx(expected["joint_accuracy"] / 100, abs=1e-9),
        "slot_f1": pytest.approx(expected["slot_f1"] / 100, abs=1e-9),
        "slot_precision": pytest.approx(expected["slot_precision"], abs=1e-9),
        "slot_recall": pytest.approx(expected["slot_recall"], abs=1e-9),
    }
    assert scores["joint_accuracy"].overall.n == expected["turns"]


@pytest.mark.shared
def test_the_label_fix_has_the_published_effect() -> None:
    facts = json.loads(shared_path("golden", "trade", "fix_label_changes.json").read_text())
    changed = {(c["slot"], c["value"]): c["fixed"] for c in facts["changed_pairs"]}
    for slot in facts["slots"]:
        ref = SlotRef(*slot.split("-", 1))
        for value in facts["values_tried"]:
            assert fix_label(ref, value) == changed.get((slot, value), value), (slot, value)
    assert sum(map(len, TRADE_SLOTS.values())) == len(facts["slots"]) == 30


@pytest.fixture(scope="module")
def mintl() -> tuple[ScoreInput, dict[str, Any]]:
    found = read_predictions(Source(shared_path("golden", "trade", "mintl.json")))
    assert found.format == "trade"
    expected = json.loads(shared_path("golden", "trade", "metrics.json").read_text())["systems"]["mintl"]
    return build(found.rows, whole_state=True, goals=found.goals), expected


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "key", "measures"),
    [
        ("trade", "trade_t5dst_fixlabel_off", ("joint_acc", "slot_acc", "slot_f1")),
        ("trade_label_fix", "trade_t5dst_fixlabel_on", ("joint_acc", "slot_acc", "slot_f1")),
        ("icdst_convention", "icdst_evaluate", ("jga", "slot_acc_30", "f1")),
    ],
)
def test_thirty_slots_equal_the_evaluators(
    mintl: tuple[ScoreInput, dict[str, Any]], name: str, key: str, measures: tuple[str, ...]
) -> None:
    data, expected = mintl
    scores = scored(name, data)
    for domain, numbers in expected[key].items():
        for ours, theirs in zip(("joint_goal_accuracy", "slot_accuracy", "turn_f1"), measures, strict=True):
            figure = scores[ours].overall if domain == "all" else scores[ours].by["domain"][domain]
            assert figure.value == pytest.approx(numbers[theirs], abs=1e-9), (domain, ours)
            assert figure.n == numbers["n_turns"]


@pytest.mark.shared
def test_fnctod_counts_the_same_turns(mintl: tuple[ScoreInput, dict[str, Any]]) -> None:
    """Its replacement lists are not repeated, so figures are near, not equal; which turns count is."""
    data, expected = mintl
    numbers = expected["fnctod_compute_jacc_ignore_dontcare_in_pred_True"]
    scores = scored("fnctod_convention", data)
    assert scores["joint_goal_accuracy"].overall.value == pytest.approx(numbers["joint_acc"], abs=0.005)
    for domain, figure in scores["joint_goal_accuracy"].by["domain"].items():
        assert figure.n == numbers["per_domain"][domain]["turns"]
        assert figure.value == pytest.approx(numbers["per_domain"][domain]["jga"], abs=0.005)


AREA, NAME = ("hotel", "hotel-area"), ("hotel", "hotel-name")


def joint(name: str, gold: str, pred: str | None, key: tuple[str, str] = AREA) -> float | None:
    corpus: Corpus = [[({key: gold}, {} if pred is None else {key: pred})]]
    return next(iter(scored(name, score_input(corpus)).values())).overall.value


@pytest.mark.parametrize(
    ("name", "gold", "pred", "right"),
    [
        ("trade", "none", None, 0.0),
        ("trade", "none", "none", 0.0),
        ("icdst_convention", "none", None, 1.0),
        ("fnctod_convention", "none", "none", 1.0),
        ("trade", "dontcare", "dontcare", 1.0),
        ("fnctod_convention", "dontcare", "dontcare", 0.0),
        ("icdst_convention", "north|south", "south", 1.0),
        ("icdst_convention", "north", "north<south", 1.0),
        ("trade", "north|south", "south", 0.0),
        ("trade_label_fix", "the south", "south", 1.0),
        ("trade", "the south", "south", 0.0),
        ("trade_label_fix", "south", "the south", 0.0),
    ],
)
def test_what_the_conventions_do_with_odd_values(name: str, gold: str, pred: str | None, right: float) -> None:
    assert joint(name, gold, pred) == right


def test_mwzeval_forgives_substrings_but_not_the_empty_text() -> None:
    assert joint("mwzeval", "acorn guest house", "the acorn guest house", NAME) == pytest.approx(1.0)
    assert joint("mwzeval", "acorn house", "acorn guest house", NAME) == pytest.approx(1.0)
    assert joint("mwzeval", "acorn", "", NAME) == pytest.approx(0.0)
    assert joint("mwzeval", "Acorn", "acorn", AREA) == pytest.approx(0.0)


@pytest.mark.parametrize("spelling", ["bookday", "book day", "book-day", "Book Day", "hotel-bookday", "day"])
def test_slot_names_of_trade(spelling: str) -> None:
    assert trade_slot(SlotRef("hotel", spelling)) == SlotRef("hotel", "book day")


def test_other_names_stay() -> None:
    assert trade_slot(SlotRef("train", "train-day")) == SlotRef("train", "day")
    assert trade_slot(SlotRef("taxi", "leaveAt")) == SlotRef("taxi", "leaveat")
    assert trade_slot(SlotRef("train", "leave")) == SlotRef("train", "leaveat")
    assert trade_slot(SlotRef("hospital", "hospital-department")) == SlotRef("hospital", "department")
