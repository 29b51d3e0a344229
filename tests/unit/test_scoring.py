"""Score reports of run folders and of foreign predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dialoom.errors import DataError, JobError, StorageError
from dialoom.schema import Schema, Service, Slot
from dialoom.scoring import ScoreReport, definition_names, score_predictions, score_run
from support.shared import shared_path
from support.traces import frame, slot_values, turn_rows, turns_table, whole_state, write_run

A = ("hotel", "hotel-area")
SCHEMA = Schema("mwz", {"hotel": Service("hotel", slots=(Slot("hotel-area"),))})


def turn(right: bool, **more: Any) -> dict[str, Any]:
    return {"gold": whole_state({A: "north"}), "state": slot_values({A: "north" if right else "south"}), **more}


def test_unscored_dialogues_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [*turn_rows("a", [turn(True), turn(False)]), *turn_rows("b", [turn(False)]), *turn_rows("c", [turn(True)])]
    outcomes = {"a": "corrected", "b": "infrastructure", "c": "fallback", "d": "bad_input"}
    report = score_run(write_run(tmp_path / "run", rows, outcomes=outcomes, schema=SCHEMA))
    (group,) = report.groups
    assert group.definitions["joint_goal"].headline[1].overall.value == pytest.approx(2 / 3)
    assert (group.coverage.dialogues_scored, group.coverage.dialogues_total) == (2, 4)
    assert dict(group.coverage.by_outcome) == {"corrected": 1, "fallback": 1, "infrastructure": 1, "bad_input": 1}
    headline = report.to_dict()["groups"][0]["definitions"]["joint_goal"]["headline"]
    assert (headline["dialogues_scored"], headline["dialogues_total"]) == (2, 4)
    assert report.flat()["coverage/share"] == 0.5


def test_a_report_survives_json(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", turn_rows("a", [turn(True)]) + turn_rows("b", [turn(False)]), schema=SCHEMA)
    report = score_run(run)
    assert ScoreReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_groups_are_methods_and_cells(tmp_path: Path) -> None:
    rows = turn_rows("a", [turn(True)], cell="k=1") + turn_rows("a", [turn(False)], cell="k=2")
    report = score_run(write_run(tmp_path / "run", rows))
    assert [(g.label, g.definitions["joint_goal"].headline[1].overall.value) for g in report.groups] == [
        ("tracker.k=1", 1.0),
        ("tracker.k=2", 0.0),
    ]
    assert report.flat()["tracker.k=2/joint_goal/joint_goal_accuracy"] == 0.0


def test_trials_of_a_dialogue_are_scored_together(tmp_path: Path) -> None:
    rows = turn_rows("a", [turn(True)]) + turn_rows("a", [turn(False)], trial=1)
    report = score_run(write_run(tmp_path / "run", rows))
    assert report.flat()["joint_goal/joint_goal_accuracy"] == 0.5
    assert report.groups[0].coverage.dialogues_scored == 2


def test_undeclared_outputs_are_null_in_the_report(tmp_path: Path) -> None:
    gold = [frame("hotel", {}, "find", requested=[])]
    rows = turn_rows("a", [{"gold": gold, "state": [], "requested": [], "active_intents": []}])
    run = write_run(tmp_path / "run", rows, declares=("state", "intent"), schema=SCHEMA)
    record = score_run(run).to_dict()["groups"][0]["definitions"]
    assert record["intent_accuracy"]["measures"]["accuracy"]["value"] == 0.0
    assert record["requested_f1"]["measures"]["macro_f1"]["value"] is None
    assert record["sgd_fuzzy"]["measures"]["requested_slots_f1"]["value"] is None
    assert not any("requested" in name for name in score_run(run).flat())


def test_split_and_foldered_tables_are_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", turn_rows("a", [turn(True)]))
    pq.write_table(turns_table(turn_rows("b", [turn(False)])), run / "traces" / "turns-1.parquet")
    (run / "traces" / "turns").mkdir()
    for name in ("turns.parquet", "turns-1.parquet"):
        (run / "traces" / name).rename(run / "traces" / "turns" / name)
    assert score_run(run, definitions=["joint_goal"]).flat()["joint_goal/joint_goal_accuracy"] == 0.5


def test_a_run_without_gold_still_has_its_effort(tmp_path: Path) -> None:
    rows = turn_rows("a", [{"gold": None, "state": [], "n_calls": 2}])
    flat = score_run(write_run(tmp_path / "run", rows)).flat()
    assert flat["effort/calls_mean"] == 2.0
    assert "joint_goal/joint_goal_accuracy" not in flat


def test_an_empty_run_has_no_groups(tmp_path: Path) -> None:
    report = score_run(write_run(tmp_path / "run", []))
    assert report.groups == ()
    assert report.flat() == {}


def test_what_is_wrong_with_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no run.json"):
        score_run(tmp_path)
    run = write_run(tmp_path / "run", turn_rows("a", [turn(True)]))
    with pytest.raises(JobError, match="joint_goal"):
        score_run(run, definitions=["joint_gaol"])
    (run / "traces" / "turns.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(StorageError, match=r"turns\.parquet"):
        score_run(run)


def test_every_definition_explains_itself() -> None:
    from dialoom import registry

    for name in definition_names():
        definition = registry.find("metrics", name)
        assert definition.name == name
        assert len(definition.formula) > 40, name
        assert definition.meaning and definition.source
        assert len({m.name for m in definition.measures}) == len(definition.measures)


@pytest.mark.shared
def test_predictions_made_elsewhere(tmp_path: Path) -> None:
    test = shared_path("sgd", "test")
    report = score_predictions(shared_path("golden", "sgd", "p3"), test, test / "schema.json")
    assert report.flat()["sgd_exact/joint_goal_accuracy"] == pytest.approx(0.7811489679184282, abs=1e-9)
    assert report.groups[0].coverage.dialogues_scored == 640
    assert "not predicted" in report.notes[0]


def sgd_dialogue(dialogue_id: str, states: list[dict[str, list[str]]]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for i, slots in enumerate(states):
        state = {"active_intent": "Find", "requested_slots": [], "slot_values": slots}
        turns += [
            {"speaker": "USER", "utterance": f"u{i}", "frames": [{"service": "H_1", "slots": [], "state": state}]},
            {"speaker": "SYSTEM", "utterance": f"s{i}", "frames": []},
        ]
    return {"dialogue_id": dialogue_id, "services": ["H_1"], "turns": turns}


def sgd_folders(path: Path, predicted: list[dict[str, Any]]) -> tuple[Path, Path]:
    (path / "gold").mkdir()
    (path / "pred").mkdir()
    gold = [sgd_dialogue("1", [{"city": ["Rome"]}, {}]), sgd_dialogue("2", [{"city": ["Rome"]}])]
    schema = [{"service_name": "H_1", "slots": [{"name": "city", "is_categorical": False}], "intents": []}]
    (path / "gold" / "dialogues_001.json").write_text(json.dumps(gold))
    (path / "gold" / "schema.json").write_text(json.dumps(schema))
    (path / "pred" / "dialogues_001.json").write_text(json.dumps(predicted))
    return path / "pred", path / "gold"


def test_misfits_name_dialogues_and_turns(tmp_path: Path) -> None:
    short = sgd_dialogue("1", [{"city": ["Rome"]}])
    unknown = sgd_dialogue("9", [{}])
    odd = sgd_dialogue("2", [{"city": []}])
    pred, gold = sgd_folders(tmp_path, [short, unknown, odd])
    with pytest.raises(DataError) as caught:
        score_predictions(pred, gold)
    text = str(caught.value)
    assert "dialogue 1: 2 turns, gold has 4" in text
    assert "dialogue 9: not in gold" in text
    assert "dialogue 2 turn 0: slot H_1 city" in text


def test_a_missing_frame_and_another_utterance_are_misfits(tmp_path: Path) -> None:
    dialogue = sgd_dialogue("1", [{"city": ["Rome"]}, {}])
    dialogue["turns"][0]["utterance"] = "something else"
    dialogue["turns"][2]["frames"] = []
    pred, gold = sgd_folders(tmp_path, [dialogue])
    with pytest.raises(DataError, match="turn 0: utterance differs") as caught:
        score_predictions(pred, gold)
    assert "dialogue 1 turn 2: no frame for service H_1" in str(caught.value)


def test_dialogues_may_end_early_when_asked(tmp_path: Path) -> None:
    pred, gold = sgd_folders(tmp_path, [sgd_dialogue("1", [{"city": ["Rome"]}])])
    report = score_predictions(pred, gold, partial=True)
    assert report.flat()["sgd_exact/joint_goal_accuracy"] == 1.0
    assert report.groups[0].coverage.turns_labelled == 1


def test_unreadable_predictions_are_errors(tmp_path: Path) -> None:
    pred, gold = sgd_folders(tmp_path, [])
    (pred / "dialogues_001.json").write_text('[{"dialogue_id": "1",')
    with pytest.raises(DataError, match=r"dialogues_001\.json:1"):
        score_predictions(pred, gold)
    with pytest.raises(DataError, match="no such file"):
        score_predictions(tmp_path / "nowhere", gold)


def test_extra_frames_are_ignored_and_seen_services_come_from_the_training_schema(tmp_path: Path) -> None:
    dialogue = sgd_dialogue("1", [{"city": ["Rome"]}, {}])
    dialogue["turns"][0]["frames"].append({"service": "H_2"})
    pred, gold = sgd_folders(tmp_path, [dialogue])
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "schema.json").write_text((gold / "schema.json").read_text())
    report = score_predictions(pred, gold)
    assert report.flat()["sgd_exact/joint_goal_accuracy/services/seen"] == 1.0
    assert report.groups[0].coverage.dialogues_total == 2


def test_a_prediction_in_another_form_names_the_dialogue(tmp_path: Path) -> None:
    dialogue = sgd_dialogue("1", [{"city": ["Rome"]}, {}])
    dialogue["turns"][0]["frames"] = 7
    pred, gold = sgd_folders(tmp_path, [dialogue])
    with pytest.raises(DataError, match="dialogue 1: gold or prediction is not in SGD"):
        score_predictions(pred, gold)
