"""Comparisons of runs: paired tests, flips, settings that differ, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialoom.compare import Comparison, compare_runs
from dialoom.errors import JobError
from dialoom.schema import Schema, Service, Slot
from dialoom.stats import Resampling
from dialoom.tabular import latex, markdown
from support.traces import frame, slot_values, turn_rows, whole_state, write_run

KEY = ("hotel", "hotel-area")


def rows(right: dict[str, list[bool]], **key: Any) -> list[dict[str, Any]]:
    """Turn rows: by dialogue, whether each turn's state is right."""
    found = []
    for dialogue_id, turns in right.items():
        states = [slot_values({KEY: "north" if ok else "south"}) for ok in turns]
        found += turn_rows(dialogue_id, [{"gold": whole_state({KEY: "north"}), "state": s} for s in states], **key)
    return found


def two_runs(path: Path, first: dict[str, list[bool]], second: dict[str, list[bool]], **more: Any) -> list[Path]:
    small, large = ({"engine": {"model": size, "temperature": 0.0}} for size in ("small", "large"))
    return [
        write_run(path / "a", rows(first), identity=small),
        write_run(path / "b", rows(second), identity=large, **more),
    ]


def contrast(comparison: Comparison, definition: str, system: str) -> Any:
    return next(c for c in comparison.contrasts if c.definition == definition and c.system == system)


def test_a_clear_difference_is_marked_and_a_null_one_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = {f"d{i}": [bool(x) for x in rng.random(5) < 0.4] for i in range(60)}
    better = {d: [ok or bool(rng.random() < 0.5) for ok in turns] for d, turns in first.items()}
    comparison = compare_runs(two_runs(tmp_path, first, better), definitions=["joint_goal", "slot_f1"])
    found = contrast(comparison, "joint_goal", "b/tracker")
    values = [np.mean([ok for t in s.values() for ok in t]) for s in (first, better)]
    assert found.paired.difference == pytest.approx(values[1] - values[0])
    assert found.paired.interval.low < found.paired.difference < found.paired.interval.high
    assert found.paired.p_value == pytest.approx(1 / 1001)
    assert found.mark == "**"
    assert found.paired.effect_size > 0.5
    same = compare_runs(two_runs(tmp_path / "same", first, first), definitions=["joint_goal"])
    equal = contrast(same, "joint_goal", "b/tracker")
    assert (equal.paired.difference, equal.paired.p_value, equal.mark) == (0.0, 1.0, "")


def test_only_dialogues_that_both_have_are_paired(tmp_path: Path) -> None:
    first = {"a": [True], "b": [False], "c": [True], "x": [False]}
    second = {"c": [False], "b": [True], "a": [True], "y": [True], "z": [True]}
    runs = two_runs(tmp_path, first, second, outcomes={"z": "infrastructure"})
    comparison = compare_runs(runs, definitions=["joint_goal"])
    found = contrast(comparison, "joint_goal", "b/tracker")
    assert found.value == 0.75
    assert found.paired.n == 3
    assert found.paired.difference == pytest.approx(0.0)
    assert [(f.dialogue_id, f.baseline_value, f.value) for f in comparison.flips] == [("b", 0.0, 1.0), ("c", 1.0, 0.0)]
    assert "b/tracker: 1 dialogues are not scored and left out." in comparison.notes


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    comparison = compare_runs(two_runs(tmp_path, {"a": [True]}, {"a": [True]}))
    assert comparison.settings == (("engine.model", ("small", "large")),)


def test_methods_and_cells_of_one_run(tmp_path: Path) -> None:
    right = {"a": [True, False], "b": [True, True]}
    table = rows(right) + rows({"a": [True, True], "b": [True, True]}, method="other", cell="k=2")
    comparison = compare_runs([write_run(tmp_path / "run", table)])
    assert [s.label for s in comparison.systems] == ["tracker", "other.k=2"]
    assert [f.dialogue_id for f in comparison.flips] == ["a"]


def test_average_service_figures_pair_up_whatever_the_order_of_services(tmp_path: Path) -> None:
    services = {n: Service(n, slots=(Slot("x"),)) for n in ("A_1", "B_1")}

    def sgd(order: list[str], wrong: str) -> list[dict[str, Any]]:
        found = []
        for i, name in enumerate(order * 3):
            state = slot_values({(name, "x"): "no" if name == wrong else "yes"})
            found += turn_rows(f"{name}-{i // 2}", [{"gold": [frame(name, {"x": "yes"}, "Do")], "state": state}])
        return found

    schema = Schema("s", services)
    runs = [
        write_run(tmp_path / "a", sgd(["A_1", "B_1"], "B_1"), schema=schema),
        write_run(tmp_path / "b", sgd(["B_1", "A_1"], ""), schema=schema),
    ]
    found = contrast(compare_runs(runs, definitions=["sgd_average_service"]), "sgd_average_service", "b/tracker")
    assert found.paired.n == 6
    assert found.paired.difference == pytest.approx(0.5)
    # B_1 fails in its three dialogues: swapping all three one way or the other is 2 of 8 ways.
    assert found.paired.p_value == pytest.approx(0.25, abs=0.06)


def test_tables_in_markdown_and_latex(tmp_path: Path) -> None:
    comparison = compare_runs(two_runs(tmp_path, {"a": [True], "b": [False]}, {"a": [True], "b": [True]}))
    text = markdown(comparison.table())
    assert "| joint_goal/joint_goal_accuracy | b/tracker | 1 |" in text
    tex = latex(comparison.wide())
    assert r"joint\_goal & 50.00 [0.00, 100.00] & 100.00 [100.00, 100.00] \\" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 1
    assert comparison.to_dict()["flips"] == [
        {"dialogue": "b", "system": "b/tracker", "baseline": 0.0, "value": 1.0, "flip": "now right"}
    ]


def test_one_system_cannot_be_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows({"a": [True]}))
    with pytest.raises(JobError, match="nothing to compare"):
        compare_runs([run])
    with pytest.raises(JobError, match="both called"):
        compare_runs([run, run], resampling=Resampling(50))
