"""Joint goal, slot F1 and delta against plain counting, and the properties every exact score must have."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom import registry
from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from support.traces import frame, slot_values, turn_rows, turns_table
from support.tracking_oracle import Corpus, corpora, counts, deltas, pairs, score_input

STATE = frozenset({"state"})


def value(name: str, measure: str, data: ScoreInput) -> float | None:
    found: float | None = registry.find("metrics", name).score(data, STATE)[measure].overall.value
    return found


def f1(tp: int, fp: int, fn: int) -> Any:
    return pytest.approx(2 * tp / (2 * tp + fp + fn)) if tp + fp + fn else None


@given(corpora)
def test_joint_goal_is_plain_equality(corpus: Corpus) -> None:
    turns = pairs(corpus)
    assert value("joint_goal", "joint_goal_accuracy", score_input(corpus)) == pytest.approx(
        sum(g == p for g, p in turns) / len(turns)
    )


@given(corpora)
def test_joint_goal_by_service_restricts_both_states(corpus: Corpus) -> None:
    by = registry.find("metrics", "joint_goal").score(score_input(corpus), STATE)["joint_goal_accuracy"].by["service"]
    for service in ("hotel", "taxi", "train"):
        kept = [d for d in corpus if any(s == service for gold, _ in d for s, _ in gold)]
        right = [
            {k: v for k, v in gold.items() if k[0] == service} == {k: v for k, v in pred.items() if k[0] == service}
            for gold, pred in pairs(kept)
        ]
        if right:
            assert by[service].value == pytest.approx(sum(right) / len(right))
            assert by[service].n == len(right)
        else:
            assert service not in by


@given(corpora)
def test_slot_f1_counts_slots(corpus: Corpus) -> None:
    data = score_input(corpus)
    tp, fp, fn = counts(pairs(corpus))
    assert value("slot_f1", "f1", data) == f1(tp, fp, fn)
    assert value("slot_f1", "precision", data) == (pytest.approx(tp / (tp + fp)) if tp + fp else None)
    assert value("slot_f1", "recall", data) == (pytest.approx(tp / (tp + fn)) if tp + fn else None)


@given(corpora)
def test_delta_compares_changes(corpus: Corpus) -> None:
    data, changed = score_input(corpus), deltas(corpus)
    assert value("delta", "accuracy", data) == pytest.approx(sum(g == p for g, p in changed) / len(changed))
    busy = [g == p for g, p in changed if g]
    assert value("delta", "accuracy_where_gold_changes", data) == (
        pytest.approx(sum(busy) / len(busy)) if busy else None
    )
    assert value("delta", "f1", data) == f1(*counts(changed))


EXACT = [("joint_goal", "joint_goal_accuracy"), ("slot_f1", "f1"), ("slot_f1", "precision"), ("delta", "accuracy")]


@given(corpora, st.randoms(use_true_random=False))
def test_order_of_dialogues_and_slots_changes_nothing(corpus: Corpus, shuffler: random.Random) -> None:
    order = list(range(len(corpus)))
    shuffler.shuffle(order)
    mixed: Corpus = [
        [(dict(shuffler.sample(sorted(g.items()), len(g))), dict(reversed(list(p.items())))) for g, p in corpus[i]]
        for i in order
    ]
    one, other = score_input(corpus), score_input(mixed, [f"d{i}" for i in order])
    for name, measure in EXACT:
        assert value(name, measure, one) == pytest.approx(value(name, measure, other))


@given(corpora)
def test_gold_against_gold_is_one(corpus: Corpus) -> None:
    data = score_input([[(gold, gold) for gold, _ in d] for d in corpus])
    for name, measure in EXACT:
        assert value(name, measure, data) in (1.0, None)
    assert value("joint_goal", "joint_goal_accuracy", data) == 1.0


@given(corpora)
def test_a_wrong_slot_never_raises_an_exact_score(corpus: Corpus) -> None:
    worse = [[(gold, {**pred, ("bus", "bus-day"): "never"}) for gold, pred in d] for d in corpus]
    for name, measure in (("joint_goal", "joint_goal_accuracy"), ("slot_f1", "f1"), ("slot_f1", "precision")):
        before, after = (value(name, measure, score_input(c)) for c in (corpus, worse))
        assert (after or 0.0) <= (1.0 if before is None else before) + 1e-12


def test_any_accepted_form_matches() -> None:
    turns = [
        {"gold": [frame("hotel", {"name": ["a", "b"]})], "state": slot_values({("hotel", "name"): v})} for v in "abc"
    ]
    data = build(turns_table(turn_rows("d", turns)))
    assert value("joint_goal", "joint_goal_accuracy", data) == pytest.approx(2 / 3)
    # Gold stays the same all along, so only the first prediction is a right change.
    assert value("delta", "accuracy", data) == pytest.approx(1 / 3)


def test_active_services_keep_their_last_frame() -> None:
    """SGD gold names the services of the turn only; the state of the others holds on."""
    hotel, taxi = ("Hotels_1", "city"), ("Taxi_1", "to")
    turns: list[dict[str, Any]] = [
        {"gold": [frame("Hotels_1", {"city": "Rome"}, "FindHotel")], "state": slot_values({hotel: "Rome"})},
        {"gold": [frame("Taxi_1", {"to": "Ostia"}, "GetTaxi")], "state": slot_values({hotel: "Rome", taxi: "Ostia"})},
        {"gold": [frame("Hotels_1", {}, "NONE")], "state": slot_values({taxi: "Ostia"})},
        {"gold": [frame("Hotels_1", {}, "NONE")], "state": slot_values({})},
    ]
    data = build(turns_table(turn_rows("d", turns)))
    assert not data.whole_state
    assert value("joint_goal", "joint_goal_accuracy", data) == 0.75


def test_a_turn_without_a_state_keeps_the_last_one_and_unlabelled_turns_are_not_scored() -> None:
    gold, state = [frame("hotel", {"name": "a"})], slot_values({("hotel", "name"): "a"})
    turns: list[dict[str, Any]] = [
        {"gold": gold, "state": state},
        {"gold": None, "state": []},
        {"gold": gold, "state": None},
    ]
    other: list[dict[str, Any]] = [{"gold": gold, "state": None}]
    data = build(turns_table([*turn_rows("d", turns), *turn_rows("e", other)]))
    assert data.n_turns == 3
    assert [bool(x) for x in data.exact_turns] == [True, False, False]
