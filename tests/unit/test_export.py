"""Runs exported to the formats of other evaluators, and scored again from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from dialoom.errors import JobError
from dialoom.export import export_run
from dialoom.schema import Schema, Service, Slot
from dialoom.scoring import ScoreReport, score_predictions, score_run
from support.shared import shared_path
from support.traces import frame, slot_values, turn_rows, whole_state, write_run
from support.tracking_oracle import Corpus, corpora

STATE_SCORES = ["joint_goal", "slot_f1", "delta", "gca", "fga", "aga", "trade", "trade_label_fix", "icdst_convention"]


def values(report: ScoreReport) -> dict[str, float]:
    return {k: v for k, v in report.flat(breakdowns=()).items() if not k.startswith("coverage")}


def run_of(path: Path, corpus: Corpus) -> Path:
    rows: list[dict[str, Any]] = []
    for i, dialogue in enumerate(corpus):
        turns = [{"gold": whole_state(gold), "state": slot_values(pred)} for gold, pred in dialogue]
        rows += turn_rows(f"PMUL{i}.json", turns)
    return write_run(path / "run", rows)


@pytest.mark.parametrize("format", ["mwzeval", "trade", "gt_pr"])
@given(corpus=corpora)
@settings(max_examples=15)
def test_whole_states_score_the_same_after_export(
    tmp_path_factory: pytest.TempPathFactory, format: str, corpus: Corpus
) -> None:
    path = tmp_path_factory.mktemp("export")
    run = run_of(path, corpus)
    before = values(score_run(run, definitions=[*STATE_SCORES, "mwzeval"], resampling=None))
    export_run(run, format, path / "out")
    gold = path / "out" / "gold.json" if format == "mwzeval" else None
    report = score_predictions(
        path / "out" / "predictions.json", gold, definitions=[*STATE_SCORES, "mwzeval"], resampling=None
    )
    assert values(report) == pytest.approx(before)


def test_several_forms_and_unlabelled_turns_survive(tmp_path: Path) -> None:
    gold = [frame("hotel", {"hotel-name": ["a", "b"]})]
    right = slot_values({("hotel", "hotel-name"): "b"})
    turns: list[dict[str, Any]] = [
        {"gold": gold, "state": right},
        {"gold": None, "state": right},
        {"gold": gold, "state": []},
    ]
    run = write_run(tmp_path / "run", turn_rows("a", turns))
    before = values(score_run(run, definitions=STATE_SCORES))
    assert before["joint_goal/joint_goal_accuracy"] == 0.5
    for format in ("mwzeval", "trade", "gt_pr"):
        export_run(run, format, tmp_path / format)
        gold_file = tmp_path / format / "gold.json" if format == "mwzeval" else None
        report = score_predictions(tmp_path / format / "predictions.json", gold_file, definitions=STATE_SCORES)
        assert values(report) == pytest.approx(before), format


def test_names_are_those_of_the_format(tmp_path: Path) -> None:
    state = slot_values({("hotel", "hotel-bookday"): "friday"})
    run = write_run(tmp_path / "run", turn_rows("PMUL1.json", [{"gold": [], "state": state}]))
    export_run(run, "mwzeval", tmp_path / "m")
    export_run(run, "trade", tmp_path / "t")
    mwzeval = json.loads((tmp_path / "m" / "predictions.json").read_text())
    assert mwzeval == {"pmul1": [{"hotel": {"bookday": "friday"}}]}
    trade = json.loads((tmp_path / "t" / "predictions.json").read_text())
    assert trade["PMUL1.json"]["turns"]["0"]["pred"] == {"hotel-book day": "friday"}


def test_unscored_dialogues_and_other_trials_are_not_exported(tmp_path: Path) -> None:
    turn: dict[str, Any] = {"gold": [], "state": []}
    rows = [*turn_rows("a", [turn]), *turn_rows("b", [turn]), *turn_rows("a", [turn], trial=1)]
    run = write_run(tmp_path / "run", rows, outcomes={"b": "interrupted"})
    export_run(run, "gt_pr", tmp_path / "out")
    assert list(json.loads((tmp_path / "out" / "predictions.json").read_text())) == ["a"]


def test_a_run_of_several_methods_needs_a_choice(tmp_path: Path) -> None:
    turn: dict[str, Any] = {"gold": [], "state": []}
    run = write_run(tmp_path / "run", turn_rows("a", [turn]) + turn_rows("a", [turn], method="other"))
    with pytest.raises(JobError, match="tracker, other"):
        export_run(run, "gt_pr", tmp_path / "out")
    assert export_run(run, "gt_pr", tmp_path / "out", method="other")


def sgd_run(path: Path) -> tuple[Path, Path]:
    """Two multi-service SGD dialogues of the public test set as a run with some wrong values."""
    folder = shared_path("sgd", "test")
    gold_dir = path / "gold"
    gold_dir.mkdir()
    dialogues = json.loads((folder / "dialogues_014.json").read_text())[:2]
    (gold_dir / "dialogues_001.json").write_text(json.dumps(dialogues))
    records = json.loads((folder / "schema.json").read_text())
    (gold_dir / "schema.json").write_text(json.dumps(records))
    rows: list[dict[str, Any]] = []
    for n, dialogue in enumerate(dialogues):
        state: dict[tuple[str, str], str] = {}
        turns, intents, system = [], {}, ""
        for i, turn in enumerate(dialogue["turns"]):
            if turn["speaker"] == "SYSTEM":
                system = turn["utterance"]
                continue
            for f in turn["frames"]:
                intents[f["service"]] = f["state"]["active_intent"]
                for slot, forms in f["state"]["slot_values"].items():
                    state[f["service"], slot] = forms[0] if (i + n) % 3 else forms[0] + " or so"
            states = [(f["service"], f["state"]) for f in turn["frames"]]
            gold = [frame(s, t["slot_values"], t["active_intent"], t["requested_slots"]) for s, t in states]
            named = [{"service": s, "intent": v} for s, v in intents.items()]
            texts = {"system_text": system, "user_text": turn["utterance"], "turn": i}
            turns.append({"gold": gold, "state": slot_values(state), "active_intents": named, **texts})
        rows += turn_rows(dialogue["dialogue_id"], turns)
    services = {
        r["service_name"]: Service(
            r["service_name"], slots=tuple(Slot(s["name"], is_categorical=s["is_categorical"]) for s in r["slots"])
        )
        for r in records
    }
    run = write_run(path / "run", rows, schema=Schema("sgd", services), declares=("state", "intent"))
    return run, gold_dir


@pytest.mark.shared
def test_an_sgd_run_scores_the_same_after_export(tmp_path: Path) -> None:
    run, gold = sgd_run(tmp_path)
    names = ["sgd_fuzzy", "sgd_exact", "joint_goal", "delta", "intent_accuracy", "requested_f1", "sgd_average_service"]
    before = values(score_run(run, definitions=names))
    export_run(run, "sgd", tmp_path / "out")
    report = score_predictions(tmp_path / "out", gold, definitions=names)
    assert values(report) == pytest.approx(before)
    assert 0 < before["sgd_exact/joint_goal_accuracy"] < 1
    assert not any("requested" in name for name in before)
