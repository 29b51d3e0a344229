"""The tracker on the bundled sample: against the oracle in one process, and through the whole runtime."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from dialoom import registry
from dialoom.dialogue import Dialogue, Speaker
from dialoom.methods.tracker._rule import answer
from dialoom.outcome import Outcome
from dialoom.reach import unreachable
from dialoom.reader import open_dialogues
from dialoom.schema import Schema
from dialoom.schema_files import load_schema
from support.context import Answers, InProcess, scripted
from support.scripts import ERRORS, Expected, write_answers
from support.shared import ROOT

SAMPLE = ROOT / "jobs" / "data" / "sample.jsonl"
SCHEMA = ROOT / "schemas" / "sample.yaml"


def sample() -> tuple[list[Dialogue], Schema]:
    records = list(open_dialogues("chat", [str(SAMPLE)], {}))
    dialogues = [d for d in records if isinstance(d, Dialogue)]
    assert len(dialogues) == len(records) > 10
    assert {d.lang for d in dialogues} == {"en", "zh"}
    return dialogues, load_schema(SCHEMA)


async def track(dialogues: list[Dialogue], schema: Schema, engine: Any, **settings: Any) -> list[InProcess]:
    plugin = registry.find("methods", "tracker")
    tracker = plugin.create(plugin.config(**settings), schema)
    contexts = [InProcess(dialogue, schema, engine) for dialogue in dialogues]
    for dialogue, context in zip(dialogues, contexts, strict=True):
        await tracker.run(dialogue, context)
    return contexts


def test_all_gold_of_the_sample_is_within_reach() -> None:
    dialogues, schema = sample()
    assert list(unreachable(dialogues, schema)) == []


@pytest.mark.parametrize("errors", [(), ERRORS])
@pytest.mark.parametrize("protocol", ["json", "text"])
def test_the_sample_ends_at_its_gold(protocol: str, errors: tuple[str, ...], tmp_path: Path) -> None:
    dialogues, schema = sample()
    path = tmp_path / "answers.jsonl"
    expected = write_answers(path, dialogues, schema, protocol=protocol, errors=errors, share=0.5)

    async def run() -> list[InProcess]:
        return await track(dialogues, schema, await scripted(path), protocol=protocol)

    contexts = asyncio.run(run())
    traces = {(c.unit.dialogue_id, t.turn): t for c in contexts for t in c.traces}
    for turn in expected:
        trace = traces[turn.dialogue_id, turn.turn]
        assert trace.state is not None and dict(trace.state) == turn.state
        assert sorted((f.rule, f.call) for f in trace.fired) == sorted(turn.fired)
    for dialogue in dialogues:
        for index, said in enumerate(dialogue.turns):
            for frame in said.frames or ():
                held = traces[dialogue.dialogue_id, index].state
                assert held is not None and held.of(frame.service) == {s: v[0] for s, v in frame.slot_values.items()}


@pytest.mark.parametrize(
    "settings", [{}, {"protocol": "text"}, {"loop": False}, {"validator": False}, {"slots": "intents"}]
)
def test_the_rule_for_load_tests_makes_two_accepted_calls_a_turn(settings: dict[str, Any]) -> None:
    dialogues, schema = sample()
    contexts = asyncio.run(track(dialogues, schema, Answers(answer), **settings))
    for dialogue, context in zip(dialogues, contexts, strict=True):
        assert [t.outcome for t in context.traces] == [Outcome.ACCEPTED] * len(context.traces)
        assert len(context.calls) == 2 * sum(turn.speaker is Speaker.USER for turn in dialogue.turns)
        assert context.traces[-1].state
        requests = context.requests
        for request in requests[:2]:
            best = min(_seconds(request) for _ in range(20))
            assert best < 200e-6


def _seconds(request: Any) -> float:
    start = time.perf_counter()
    answer(request)
    return time.perf_counter() - start


def write_job(path: Path, script: Path) -> Path:
    job = {
        "name": "oracle",
        "data": {"reader": "chat", "paths": [str(SAMPLE)]},
        "schema": {"path": str(SCHEMA)},
        "methods": [
            {"use": "tracker", "name": "json"},
            {"use": "tracker", "name": "text", "protocol": "text"},
            {"use": "tracker", "name": "unchecked", "validator": False},
        ],
        "engines": {"main": {"use": "scripted", "answers": str(script)}},
        "run": {"root": str(path.parent / "runs"), "workers": 1},
        "tracking": {"enabled": False},
    }
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


@pytest.mark.timeout(300)
def test_the_whole_runtime_ends_at_the_oracle(tmp_path: Path) -> None:
    from dialoom.cli.runs import planned
    from dialoom.run import run
    from dialoom.traces.read import read_table

    dialogues, schema = sample()
    script, expected = tmp_path / "answers.jsonl", dict[str, list[Expected]]()
    lines = ""
    for method, protocol in (("json", "json"), ("text", "text"), ("unchecked", "json")):
        errors = ("kind", "time", "outside_list", "broken")
        expected[method] = write_answers(
            script, dialogues, schema, protocol=protocol, errors=errors, share=0.5, method=method
        )
        lines += script.read_text(encoding="utf-8")
    script.write_text(lines, encoding="utf-8")
    result = run(planned(write_job(tmp_path / "job.yaml", script), []))
    assert result.status == 0
    folder = tmp_path / "runs" / "oracle"

    turns = read_table(folder, "turns").to_pylist()
    rows = {(r["method"], r["dialogue_id"], r["turn"]): r for r in turns}
    assert len(rows) == sum(map(len, expected.values()))
    for method in ("json", "text"):
        for turn in expected[method]:
            row = rows[method, turn.dialogue_id, turn.turn]
            assert {(s["service"], s["slot"]): s["value"] for s in row["state"]} == turn.state
            assert sorted((f["rule"], f["call"]) for f in row["fired"]) == sorted(turn.fired)
            assert row["outcome"] == ("corrected" if turn.fired else "accepted")
            assert row["n_calls"] == len(turn.answers)
    flat = result.flat
    for method in ("json", "text"):
        assert flat[f"{method}/joint_goal/joint_goal_accuracy"] == flat[f"{method}/intent_accuracy/accuracy"] == 1
    unchecked = flat["unchecked/joint_goal/joint_goal_accuracy"]
    assert 0 < unchecked == flat["json/validator/joint_goal_without"] < 0.5

    calls = read_table(folder, "calls").to_pylist()
    by_step = {c["step"] for c in calls}
    assert by_step == {"classify_intent", "resolve_slots"}
    broken = [c for c in calls if "action.not_parsable" in c["rules"]]
    assert broken and all(c["action"] is None and c["observation"] for c in broken)


@pytest.mark.timeout(300)
def test_another_validator_pays_only_for_prompts_that_changed(tmp_path: Path) -> None:
    """The same job without the rules of the schema, answered from the first run's calls where those were asked before.

    (The rules on references have a line in the prompts: with them every prompt changes.)
    """
    from dialoom.cli.runs import planned
    from dialoom.run import run
    from dialoom.traces.read import read_table

    dialogues, schema = sample()
    script = tmp_path / "answers.jsonl"
    expected = write_answers(script, dialogues, schema, errors=("time", "outside_list"), share=0.5)
    assert {rule for turn in expected for rule, _ in turn.fired} == {"schema.type", "schema.categorical"}
    job = write_job(tmp_path / "job.yaml", script)
    whole = ['methods=[{"use": "tracker"}]']
    first = run(planned(job, [*whole, "name=first"]))
    other = ['methods=[{"use": "tracker", "schema_rules": false}]', f"run.reuse=[{first.folder}]"]
    second = run(planned(job, [*other, "name=second"]))
    assert (first.status, second.status) == (0, 0)

    before, after = (read_table(r.folder.path, "calls").to_pylist() for r in (first, second))
    asked = {_prompt(call) for call in before}
    changed = [_prompt(call) not in asked for call in after]
    assert changed == [not call["replayed"] for call in after]
    assert second.progress.counts["calls"] == sum(changed)
    assert 0 < sum(changed) < len(after)
    seeded = {(t.dialogue_id, t.turn) for t in expected if t.fired}
    firsts = {d: min(t for i, t in seeded if i == d) for d, _ in seeded}
    early = [c for c in after if c["turn"] <= firsts.get(c["dialogue_id"], c["turn"])]
    assert all(c["replayed"] for c in early), "up to the first answer that is now taken, nothing changed"
    assert first.flat != second.flat


def _prompt(call: dict[str, Any]) -> tuple[Any, ...]:
    """What the model is asked, and, as the script answers by place, where."""
    return (call["dialogue_id"], call["turn"], call["call"], *call["message_ids"], call["answer_schema_id"])
