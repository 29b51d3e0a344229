"""Methods and cells of runs with their settings, cost, tokens and seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.costs import attributed_sums, costs
from dialoom.runtime.folder import RunFolder
from dialoom.stats import Resampling
from dialoom.systems import EFFICIENCY, models_of, scored_systems
from support.systems import write_sweep

CELLS = {"a": {"k": 2}, "b": {"k": 4}}
RIGHT = {"a": 1, "b": 3}


def test_settings_are_those_of_the_cell(tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "run", CELLS, right=RIGHT)
    found = [s.system for s in scored_systems(run, ["joint_goal"], Resampling(50), several=False)]
    assert [s.settings["method.settings.k"] for s in found] == [2, 4]
    assert [models_of(s.settings) for s in found] == ["small", "small"]
    assert [s.label for s in found] == ["tracker.a", "tracker.b"]


def test_cost_tokens_and_seconds_with_intervals(tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "run", CELLS, right=RIGHT, usd={"a": 0.001, "b": 0.004})
    found = {
        s.system.cell: s.system.figures for s in scored_systems(run, ["joint_goal"], Resampling(200), several=False)
    }
    cost = found["b"]["cost_usd"]
    assert cost.value == pytest.approx(6.0)
    assert cost.interval is not None
    assert cost.interval.low < 6.0 < cost.interval.high
    assert cost.higher_is_better is False
    assert found["a"]["tokens"].value == pytest.approx(110.0)
    assert found["b"]["prompt_tokens"].value == pytest.approx(300.0)
    assert found["b"]["latency_s"].value == pytest.approx(0.3055)
    assert found["b"]["engine_s"].value == pytest.approx(0.15)
    assert found["b"]["calls"].value == 2.0
    assert found["a"]["latency_p95_s"].value == pytest.approx(0.111)


def test_without_a_price_there_is_no_cost(tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "run", CELLS, right=RIGHT)
    assert all(
        "cost_usd" not in s.system.figures for s in scored_systems(run, ["joint_goal"], Resampling(50), several=False)
    )


def test_the_ratio_of_attributed_sums_is_the_cost_of_a_dialogue(tmp_path: Path) -> None:
    run = RunFolder(write_sweep(tmp_path / "run", CELLS, right=RIGHT, usd={"a": 0.001, "b": 0.004}))
    record = run.read_json("run.json") or {}
    run.put_json("run.json", {**record, "engine_time": {"e": {"gpu_usd": 0.6, "replica_s": 10.0}}})
    for key, cost in costs(run).items():
        sums = attributed_sums(run)[key]
        assert sums is not None
        assert cost.attributed_usd == pytest.approx(sums[0].sum())
        assert sums[1].sum() == cost.dialogues


def test_replayed_calls_are_known(tmp_path: Path) -> None:
    for replayed in (False, True):
        run = write_sweep(tmp_path / str(replayed), CELLS, right=RIGHT, replayed=replayed)
        assert {s.system.replayed for s in scored_systems(run, ["joint_goal"], Resampling(50), several=False)} == {
            replayed
        }


def test_a_measure_asked_for_gets_an_interval(tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "run", CELLS, right=RIGHT)
    wanted = "slot_f1/recall"
    plain, asked = (
        scored_systems(run, ["slot_f1"], Resampling(50), several=False, also=also)[1].system.figures[wanted]
        for also in ((), (wanted,))
    )
    assert plain.interval is None
    assert asked.interval is not None
    assert asked.interval.low <= (asked.value or 0.0) <= asked.interval.high


def test_settings_hold_what_a_cell_sets_of_its_engines(tmp_path: Path) -> None:
    """An endpoint's URL is no part of an engine's identity, and yet a setting of the cell."""
    run = RunFolder(write_sweep(tmp_path / "run", CELLS, right=RIGHT))
    url = "http://b:1/v1"
    record = run.read_json("run.json") or {}
    run.put_json("run.json", {**record, "cells": {"a": {}, "b": {"engines.e.base_url": url, "engines.e.model": "x"}}})
    found = scored_systems(run.path, ["joint_goal"], Resampling(50), several=False)
    assert [s.system.settings.get("engines.e.base_url") for s in found] == [None, url]
    assert [s.system.settings["engines.e.model"] for s in found] == ["small", "small"]


def test_a_cell_without_an_answer_is_not_the_cheapest_nor_the_fastest(tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "run", CELLS, right={"a": 0, "b": 3}, usd={"a": 0.0, "b": 0.004})
    a, b = (s.system.figures for s in scored_systems(run, ["joint_goal"], Resampling(50), several=False))
    assert EFFICIENCY.keys() & a.keys() == {"calls"}
    assert EFFICIENCY.keys() == EFFICIENCY.keys() & b.keys()
