"""Building blocks of definitions, and a definition from outside the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dialoom.metric import Definition, Grouping, Measure, Measured, f1, mean_of, measured, precision, recall
from dialoom.metrics._input import ScoreInput
from dialoom.scoring import score_run
from support.traces import slot_values, turn_rows, whole_state, write_run


def compute(data: ScoreInput) -> Mapping[str, Measured]:
    """Share of turns whose predicted state is empty."""
    filled = np.bincount(data.pred.turn, minlength=data.n_turns) > 0
    return {"share": mean_of(~filled, data.dialogue, data.n_dialogues, data.turn_groups)}


EMPTY = Definition("empty", "share of empty predictions", "own", (Measure("share", "share of turns"),), compute)


def test_a_definition_from_elsewhere_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("hotel", "hotel-area")
    turns = [{"gold": whole_state({key: "x"}), "state": slot_values(s)} for s in ({}, {key: "x"})]
    run = write_run(tmp_path / "run", turn_rows("a", turns))
    (tmp_path / "own_metric.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    flat = score_run(run, definitions=["own_metric:EMPTY"]).flat(breakdowns=("turn_depth",))
    assert flat["empty/share"] == 0.5
    assert flat["empty/share/turn_depth/1"] == 1.0


def test_figures_by_group_and_by_dialogue() -> None:
    groups = {"kind": Grouping(["a", "b", "none"], np.array([0, 1, -1, 1]))}
    found = mean_of(np.array([1.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 2]), 4, groups)
    assert (found.overall.value, found.overall.n) == (0.75, 4)
    assert {k: (f.value, f.n) for k, f in found.by["kind"].items()} == {"a": (1.0, 1), "b": (0.5, 2)}
    assert found.sums is not None
    assert found.sums.tolist() == [[1.0, 1.0, 1.0, 0.0], [2.0, 1.0, 1.0, 0.0]]


def test_precision_recall_and_f1_of_nothing_are_undefined() -> None:
    stats = [np.array([0.0]), np.array([0.0]), np.array([3.0])]
    dialogue = np.array([0])
    assert measured(stats, dialogue, 1, precision).overall.value is None
    assert measured(stats, dialogue, 1, recall).overall.value == 0.0
    assert measured(stats, dialogue, 1, f1).overall.value == 0.0


def test_measures_that_judge_an_undeclared_output_are_null(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", turn_rows("a", [{"gold": [], "state": []}]), declares=())
    report = score_run(run)
    judged = [m for d in report.groups[0].definitions.values() for m in d.measures.items() if d.name != "effort"]
    assert {m[0] for m in judged if m[1].overall.value is not None} <= {"trigger_rate", "fallback_rate", "fallbacks"}
