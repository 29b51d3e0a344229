"""Data of each kind through a whole run: packed, chosen by a list beside the job, bad and good records with one id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dialoom.job import load_job
from dialoom.run import RunResult, run
from dialoom.runtime.plan import make_plan
from dialoom.traces.read import read_table
from support.shared import ROOT


def job(folder: Path, reader: str, paths: str, schema: str) -> Path:
    record = {
        "name": "readers",
        "data": {"reader": reader, "paths": [paths], "options": {"ids": "lists/test.txt"}},
        "schema": {"path": str(ROOT / "schemas" / schema)},
        "methods": ["tracker"],
        "engines": {"main": {"use": "scripted", "rule": "dialoom.methods.tracker._rule:answer"}},
        "run": {"root": str(folder / "runs"), "workers": 1},
        "tracking": {"enabled": False},
    }
    (folder / "job.yaml").write_text(json.dumps(record), encoding="utf-8")
    (folder / "lists").mkdir(exist_ok=True)
    return folder / "job.yaml"


def rerun(path: Path) -> RunResult:
    return run(make_plan(*load_job(path)))


def mwz22(dialogue_id: str, **slots: list[str]) -> dict[str, Any]:
    frames = [
        {
            "service": domain,
            "state": {
                "active_intent": "NONE",
                "requested_slots": [],
                "slot_values": {f"{domain}-{s}": v for s, v in (slots if domain == "hotel" else {}).items()},
            },
        }
        for domain in ("hotel", "taxi", "police")
    ]
    turns = [{"speaker": "USER", "utterance": "a room", "frames": frames, "turn_id": "0"}]
    return {"dialogue_id": dialogue_id, "services": ["hotel"], "turns": turns}


def zstd(path: Path, text: str) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(text.encode())


@pytest.mark.timeout(300)
def test_multiwoz22_packed_and_chosen_by_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, other = mwz22("a.json", area=["north", "the north"], phone=["1"]), mwz22("c.json", area=["dontcare"])
    records = [{**good, "turns": []}, good, mwz22("b.json", area=["east"]), other]
    zstd(tmp_path / "dialogues_001.json.zst", json.dumps(records))
    path = job(tmp_path, "multiwoz22", "dialogues_001.json.zst", "multiwoz.yaml")
    (tmp_path / "lists" / "test.txt").write_text("a\nc\nlost\n")
    monkeypatch.chdir(tmp_path / "lists")
    result = rerun(path)
    folder = tmp_path / "runs" / "readers"
    rows = {r["dialogue_id"]: r for r in read_table(folder, "dialogues").to_pylist()}
    assert {i: r["outcome"] for i, r in rows.items()} == {
        "a.json": "bad_input",
        "a.json~2": "accepted",
        "c.json": "accepted",
        "lost": "bad_input",
    }
    assert rows["a.json"]["error"].endswith("dialogues_001.json.zst:1 (byte 1): the dialogue has no turns")
    assert rows["c.json"]["services"] == []
    assert json.loads(rows["c.json"]["extra"]) == {"services": ["hotel"]}
    gold = {t["dialogue_id"]: t["gold"] for t in read_table(folder, "turns").to_pylist()}
    values = [{"slot": "hotel-area", "values": ["north", "the north"]}]
    assert gold["a.json~2"] == [
        {"service": "hotel", "active_intent": None, "requested_slots": None, "slot_values": values}
    ]
    assert 0 <= result.flat["mwzeval_gold/joint_accuracy"] <= 1
    assert result.flat["coverage/dialogues_scored"] == 2
    calls = read_table(folder, "calls").num_rows
    again = rerun(path)
    assert read_table(folder, "calls").num_rows == calls > 0
    assert again.progress.counts["calls"] == 0
    assert again.flat == result.flat


@pytest.mark.timeout(300)
def test_a_table_of_logs(tmp_path: Path) -> None:
    message = pa.struct([("role", pa.string()), ("text", pa.string())])
    said = [[{"role": "user", "text": "hi"}], [{"role": "nurse", "text": "hi"}], [{"role": "user", "text": "no"}]]
    table = pa.table({"turns": pa.array(said, pa.list_(message)), "id": ["x", "y", "z"], "shop": [1, 2, 3]})
    pq.write_table(table, tmp_path / "logs.parquet")
    path = job(tmp_path, "parquet", "*.parquet", "sample.yaml")
    (tmp_path / "lists" / "test.txt").write_text('["x", "y"]')
    rerun(path)
    rows = {r["dialogue_id"]: r for r in read_table(tmp_path / "runs" / "readers", "dialogues").to_pylist()}
    assert {i: r["outcome"] for i, r in rows.items()} == {"x": "accepted", "y": "bad_input"}
    assert rows["y"]["error_where"].startswith(f"{tmp_path / 'logs.parquet'} row 2")
    assert rows["x"]["source"] == f"{tmp_path / 'logs.parquet'} row 1"
    assert json.loads(rows["x"]["extra"]) == {"shop": 1}
