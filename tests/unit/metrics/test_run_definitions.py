"""Figures of the run itself: calls, tokens, seconds, and what the validator did."""

from __future__ import annotations

from typing import Any

import pytest

from dialoom import registry
from dialoom.metric import Measured
from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from support.traces import slot_values, turn_rows, turns_table, whole_state

A, B = ("hotel", "hotel-area"), ("taxi", "taxi-leaveat")


def scored(name: str, data: ScoreInput) -> dict[str, Measured]:
    found: dict[str, Measured] = registry.find("metrics", name).score(data, frozenset({"state"}))
    return found


def fired(rule: str, key: tuple[str, str] | None = None, value: str = "") -> dict[str, Any]:
    service, slot = key or ("", "")
    return {"rule": rule, "call": 1, "service": service, "slot": slot, "value": value, "expected": ""}


def test_calls_tokens_and_seconds() -> None:
    turns = [
        {
            "n_calls": n,
            "prompt_tokens": 100 * n,
            "cached_tokens": 50 * n,
            "output_tokens": 10,
            "latency_s": 0.5 * n,
            "gold": None,
        }
        for n in (1, 2, 3, 6)
    ]
    found = scored("effort", build(turns_table(turn_rows("d", turns))))
    assert found["calls_mean"].overall.value == 3.0
    assert found["calls_p50"].overall.value == 2.5
    assert found["calls_p99"].overall.value == pytest.approx(5.91)
    assert found["prompt_tokens_mean"].overall.value == 300.0
    assert found["latency_s_p95"].overall.value == pytest.approx(2.775)
    assert found["cached_share"].overall.value == 0.5
    assert found["reasoning_tokens_mean"].overall.value is None


@pytest.fixture
def validated() -> ScoreInput:
    gold = whole_state({A: "north"})
    turns: list[dict[str, Any]] = [
        # Right value rejected, then dropped: harmed for good.
        {
            "outcome": "corrected",
            "gold": gold,
            "state": [],
            "first_proposal": slot_values({A: "north"}),
            "fired": [fired("schema.value", A, "north")],
        },
        # Wrong value rejected, right one kept.
        {
            "outcome": "corrected",
            "gold": gold,
            "state": slot_values({A: "north"}),
            "first_proposal": slot_values({A: "up", B: "noon"}),
            "fired": [fired("schema.value", A, "up"), fired("schema.type", B, "noon"), fired("action.json")],
        },
        {
            "outcome": "fallback",
            "gold": gold,
            "state": slot_values({A: "north"}),
            "first_proposal": slot_values({B: "[DELETE]"}),
            "fired": [fired("action.json")] * 3,
        },
        {"outcome": "accepted", "gold": gold, "state": slot_values({A: "north"}), "first_proposal": []},
    ]
    return build(turns_table(turn_rows("d", turns)))


def test_rates_of_the_validator(validated: ScoreInput) -> None:
    found = scored("validator", validated)
    assert found["trigger_rate"].overall.value == 0.75
    assert {k: f.value for k, f in found["trigger_rate"].by["rule"].items()} == {
        "schema.value": 0.5,
        "schema.type": 0.25,
        "action.json": 0.5,
    }
    assert found["self_correction_rate"].overall.value == pytest.approx(2 / 3)
    assert found["self_correction_rate"].by["rule"]["action.json"].value == 0.5
    assert found["self_correction_rate"].by["rule"]["action.json"].n == 2
    assert found["fallbacks"].overall.value == 1


def test_harm_is_a_rejected_value_that_gold_accepts(validated: ScoreInput) -> None:
    found = scored("validator", validated)
    assert found["harmed"].overall.value == 1
    assert found["harmed"].overall.n == 3
    assert found["harmed_rate"].overall.value == pytest.approx(1 / 3)
    assert found["harm_lasting_rate"].overall.value == pytest.approx(1 / 3)
    assert found["harmed_rate"].by["rule"]["schema.type"].value == 0.0


def test_the_state_without_the_validator(validated: ScoreInput) -> None:
    """First proposals in a chain: north; up and noon; noon deleted; unchanged."""
    found = scored("validator", validated)
    assert found["joint_goal_without"].overall.value == 0.25
    assert found["joint_goal_gain"].overall.value == pytest.approx(0.75 - 0.25)


def test_no_log_no_figures() -> None:
    rows = turn_rows("d", [{"gold": whole_state({A: "x"}), "state": []}])
    data = build(turns_table(rows).drop_columns(["outcome"]))
    assert all(m.overall.value is None for name in ("validator", "effort") for m in scored(name, data).values())
