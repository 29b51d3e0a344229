"""Foreign prediction files: which format they are, and what is said of those that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import DataError
from dialoom.predictions import Source, read_predictions
from support.shared import shared_path


def written(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


@pytest.mark.shared
@pytest.mark.parametrize(
    ("parts", "gold", "format", "missing"),
    [
        (("golden", "mwz", "pred_mintl.json"), ("golden", "mwz", "gold.json"), "mwzeval", 1),
        (("golden", "mwz", "pred_mintl.json"), ("multiwoz", "mwz21", "test"), "mwzeval", 1),
        (("golden", "gca", "poc", "NU1.json"), None, "gt_pr", 0),
        (("golden", "trade", "mintl.json"), None, "trade", 0),
        (("golden", "sgd", "p3"), ("sgd", "test"), "sgd", 1075),
    ],
)
def test_formats_are_recognised(
    parts: tuple[str, ...], gold: tuple[str, ...] | None, format: str, missing: int
) -> None:
    found = read_predictions(Source(shared_path(*parts), shared_path(*gold) if gold else None))
    assert found.format == format
    assert len(found.missing) == missing


def test_trade_files_of_the_original_code(tmp_path: Path) -> None:
    turn = {"turn_belief": ["hotel-name-a-b", "hotel-book day-friday"], "pred_bs_ptr": ["hotel-name-a-b"]}
    found = read_predictions(Source(written(tmp_path / "p.json", {"MUL1": {"0": turn, "10": turn, "9": turn}})))
    assert found.format == "trade"
    (first, *_) = found.rows.to_pylist()
    assert first["state"] == [{"service": "hotel", "slot": "name", "value": "a-b"}]
    assert first["gold"][0]["slot_values"][1] == {"slot": "book day", "values": ["friday"]}


def test_mwzeval_states_may_stand_beside_responses(tmp_path: Path) -> None:
    pred = written(tmp_path / "p.json", {"mul1": [{"response": "ok", "state": {"hotel": {"area": "north"}}}]})
    gold = written(tmp_path / "g.json", {"MUL1.json": [{"hotel": {"area": "north"}}]})
    rows = read_predictions(Source(pred, gold)).rows.to_pylist()
    assert rows[0]["state"] == [{"service": "hotel", "slot": "area", "value": "north"}]
    assert rows[0]["dialogue_id"] == "MUL1.json"


def test_of_two_spellings_of_a_slot_the_later_wins(tmp_path: Path) -> None:
    pred = written(tmp_path / "p.json", {"a": [{"taxi": {"arrive by": "1", "arriveBy": "2"}}]})
    gold = written(tmp_path / "g.json", {"a": [{}]})
    (row,) = read_predictions(Source(pred, gold)).rows.to_pylist()
    assert row["state"] == [{"service": "taxi", "slot": "arriveBy", "value": "2"}]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"a": [{}, {}]}, "dialogue a: 2 turns, gold has 1"),
        ({"a": []}, "dialogue a: 0 turns, gold has 1"),
        ({"b": [{}]}, "dialogue b: not in gold"),
        ({"a": [{}], "A.json": [{}]}, "dialogue A.json: comes twice"),
        ({"a": [{"hotel": "x"}]}, "dialogue a turn 0: slot hotel should be an object"),
        ({"a": [{"hotel": {"area": 3}}]}, "dialogue a turn 0: slot hotel area should be a text"),
        ({"a": [7]}, "dialogue a turn 0: has no state"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, record: Any, said: str) -> None:
    pred, gold = written(tmp_path / "p.json", record), written(tmp_path / "g.json", {"a": [{}]})
    with pytest.raises(DataError) as caught:
        read_predictions(Source(pred, gold), "mwzeval")
    assert said in str(caught.value)


def test_many_misfits_are_counted(tmp_path: Path) -> None:
    pred = written(tmp_path / "p.json", {f"x{i}": [{}] for i in range(50)})
    gold = written(tmp_path / "g.json", {"a": [{}]})
    with pytest.raises(DataError, match=r"50 misfits.*and 38 more"):
        read_predictions(Source(pred, gold))


@pytest.mark.parametrize(
    ("format", "record", "said"),
    [
        ("gt_pr", {"a": {"0": {"gt": {}}}}, 'dialogue a turn 0: needs "gt" and "pr"'),
        ("gt_pr", {"a": [1]}, "dialogue a: should be an object of turns"),
        ("trade", {"a": {"turns": {"0": {"gold": {}}}}}, "dialogue a turn 0: (key 0) needs gold and predicted"),
        ("trade", {"a": {"turns": {"0": {"gold": {"area": "x"}, "pred": {}}}}}, "'area' should be written domain-slot"),
    ],
)
def test_broken_turns_are_named(tmp_path: Path, format: str, record: Any, said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_predictions(Source(written(tmp_path / "p.json", record)), format)
    assert said in str(caught.value)


def test_an_unknown_format_says_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gt_pr, mwzeval, sgd, trade"):
        read_predictions(Source(written(tmp_path / "p.json", [1, 2])))
    with pytest.raises(DataError, match="gold is needed"):
        read_predictions(Source(written(tmp_path / "p.json", {"a": [{}]})))
