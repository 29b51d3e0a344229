"""The Granular Change Accuracy family: the repository's own numbers, and plain counting."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given

from dialoom import registry
from dialoom.metric import Measured
from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from dialoom.predictions import Source, read_predictions
from support import gca_oracle as oracle
from support.shared import shared_path
from support.tracking_oracle import Corpus, corpora, score_input

STATE = frozenset({"state"})
NAMES = {
    "JGA": ("joint_goal_none_dropped", "joint_goal_accuracy"),
    "SA": ("slot_accuracy", "accuracy"),
    "AGA": ("aga", "accuracy"),
    "IAGA": ("iaga", "accuracy"),
    "RSA": ("rsa", "accuracy"),
    "FGA_0.25": ("fga", "lambda_0.25"),
    "FGA_0.5": ("fga", "lambda_0.5"),
    "FGA_0.75": ("fga", "lambda_0.75"),
    "FGA_1.0": ("fga", "lambda_1"),
    "GCA": ("gca", "gca"),
}
FILES = [
    "T5/T5_result_zeroshot_rest.json",
    *(f"poc/{name}.json" for name in ("NU1", "RS1", "paper1", "poc_result1", "poc_result2", "poc_result3")),
]


def scored(name: str, data: ScoreInput) -> dict[str, Measured]:
    found: dict[str, Measured] = registry.find("metrics", name).score(data, STATE)
    return found


def value(name: str, data: ScoreInput, measure: str = "accuracy") -> float | None:
    return scored(name, data)[measure].overall.value


@pytest.mark.shared
@pytest.mark.parametrize("file", FILES)
def test_every_figure_equals_the_repository(file: str) -> None:
    expected = json.loads(shared_path("golden", "gca", "metrics.json").read_text())["files"][file]
    found = read_predictions(Source(shared_path("golden", "gca", *file.split("/"))))
    assert found.format == "gt_pr"
    data = build(found.rows, whole_state=True)
    for name, percent in expected["official"].items():
        definition, measure = NAMES[name]
        figure = value(definition, data, measure)
        assert figure is not None and round(100 * figure, 2) == percent, name
    counts = expected["counts_and_unrounded_own_verified"]
    gca = scored("gca", data)
    for ours, theirs in (("correct", "correct"), ("wrong", "wrong"), ("over", "overpred"), ("missed", "missed")):
        assert gca[ours].overall.value == counts[theirs]
    assert gca["gca"].overall.value == pytest.approx(expected["official_gca_unrounded"], abs=1e-12)
    for rate, exact in counts["FGA_unrounded"].items():
        assert value("fga", data, f"lambda_{float(rate):g}") == pytest.approx(exact, abs=1e-12)
    assert value("rsa", data) == pytest.approx(counts["RSA_unrounded"], abs=1e-12)
    assert value("slot_accuracy", data) == pytest.approx(counts["SA_unrounded"], abs=1e-12)


KEY = ("hotel", "hotel-area")


@given(corpora)
@example([[({KEY: "a"}, {KEY: "a"}), ({}, {}), ({}, {KEY: "none"})]])
@example([[({KEY: "x-y", ("taxi", "taxi-leaveat"): "b"}, {KEY: "x-z"})]])
def test_every_score_equals_plain_counting(corpus: Corpus) -> None:
    data = score_input(corpus)
    close = pytest.approx
    assert value("slot_accuracy", data) == close(oracle.slot_accuracy(corpus))
    assert value("aga", data) == _maybe(oracle.aga(corpus))
    assert value("iaga", data) == _maybe(oracle.iaga(corpus))
    assert value("rsa", data) == close(oracle.rsa(corpus))
    for rate in (0.25, 0.5, 0.75, 1.0):
        assert value("fga", data, f"lambda_{rate:g}") == close(oracle.fga(corpus, rate))
    counts, found = oracle.gca_counts(corpus), scored("gca", data)
    assert {k: found[k].overall.value for k in counts} == counts
    assert found["gca"].overall.value == _maybe(oracle.gca(corpus))


def _maybe(expected: float | None) -> object:
    return None if expected is None else pytest.approx(expected)


@given(corpora)
def test_gold_against_gold_is_one(corpus: Corpus) -> None:
    data = score_input([[(gold, gold) for gold, _ in d] for d in corpus])
    assert value("slot_accuracy", data) == 1.0
    assert value("fga", data, "lambda_0.5") == 1.0
    assert value("aga", data) in (1.0, None)
    assert value("joint_goal_none_dropped", data, "joint_goal_accuracy") == 1.0


def test_dropping_on_both_sides_is_one_correct_and_one_missed() -> None:
    found = scored("gca", score_input([[({KEY: "a"}, {KEY: "a"}), ({}, {})]]))
    assert [found[k].overall.value for k in ("correct", "wrong", "over", "missed")] == [2, 0, 0, 1]
