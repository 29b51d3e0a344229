"""The call log from outside: ``dialoom calls`` and ``dialoom run --replay``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dialoom import calls
from dialoom.runtime import recorded
from dialoom.runtime.folder import RunFolder
from dialoom.traces.read import read_table
from support.command import Command, command
from support.jobs import SCRIPTED, TINY, chat, write_data, write_job

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray"),
]  # Ray starts slowly

DIALOGUES = [chat(f"d{i}", *(["hello", "and", "bye"][: 1 + i % 3])) for i in range(12)]
N_CALLS = 4 * (1 + 2 + 3) * 2
WHO_AND_WHEN = {
    "worker", "epoch", "started_at", "finished_at", "in_flight", "replica", "latency_s", "sent_at", "source",
    "attempts", "replayed", "n_replayed",
}  # fmt: skip


@pytest.fixture
def dialoom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(run, table).to_pylist()
    return found


def assert_bit_for_bit(one: Path, two: Path) -> None:
    """All tables agree in every column that does not say who did it and when, and what this run paid."""
    contents = [{m["message_id"]: (m["role"], m["content"]) for m in rows(run, "messages")} for run in (one, two)]
    used = {i for c in rows(one, "calls") for i in c["message_ids"]}
    assert all(contents[0][i] == contents[1][i] for i in used)
    for table in ("dialogues", "turns", "calls"):
        a, b = (
            sorted(
                ({k: v for k, v in r.items() if k not in WHO_AND_WHEN and "paid" not in k} for r in rows(run, table)),
                key=repr,
            )
            for run in (one, two)
        )
        assert a == b, table


def figures(printed: str) -> dict[str, str]:
    """A two-column table as a dictionary."""
    lines = (re.split(r"\s{2,}", line.strip()) for line in printed.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def test_stats_list_and_export(tmp_path: Path, dialoom: Command) -> None:
    job = write_job(tmp_path, DIALOGUES)
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    run = tmp_path / "runs" / "small"
    found = figures(dialoom("calls", "stats", run).out)
    assert found["recorded answers"] == found["calls of the run"] == str(N_CALLS)
    assert found["of these in no trace"] == "0"
    assert found["answered from a log"] == "0 (0.0%)"
    assert found["segments"] == "1"

    listed = dialoom("calls", "list", run, "--dialogue", "d2").out
    assert listed.startswith("6 calls")
    assert len(re.findall(r"^d2 ", listed, re.MULTILINE)) == 6
    assert f"(+{N_CALLS - 5} more; --most shows them)" in dialoom("calls", "list", run, "--most", "5").out

    out = tmp_path / "calls.jsonl"
    assert f"{N_CALLS} calls written" in dialoom("calls", "export", run, "--to", out).out
    records = [json.loads(line) for line in out.read_text().splitlines()]
    traced = rows(run, "calls")
    assert [r["text"] for r in records] == [c["text"] for c in traced]
    for record in records:
        system, user = record["messages"]
        assert system == {"role": "system", "content": "You answer."}
        assert user["content"].startswith(f"{record['dialogue_id']} {record['turn']} {record['call']} ")
        assert record["text"].endswith(user["content"][-12:])
    assert dialoom("calls", "export", run, "--to", out, "--most", "3").status == 0
    assert len(out.read_text().splitlines()) == 3


def test_prune_drops_what_no_trace_refers_to(tmp_path: Path, dialoom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PIECE_BYTES", 300)
    job = write_job(tmp_path, DIALOGUES)
    run = tmp_path / "runs" / "small"
    dialoom("run", job, "--log-format", "quiet")
    write_data(tmp_path / "data.jsonl", [*DIALOGUES[:11], chat("d11", "something", "else", "now")])
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    assert figures(dialoom("calls", "stats", run).out)["of these in no trace"] == "6"
    with RunFolder(run).locked():
        refused = dialoom("calls", "prune", run)
    assert refused.status == 2
    assert "another process is running this job" in refused.err
    before = rows(run, "calls")
    assert dialoom("calls", "prune", run).out == f"{N_CALLS} answers kept, 6 dropped\n"
    assert dialoom("calls", "prune", run).out == f"{N_CALLS} answers kept, 0 dropped\n"
    found = figures(dialoom("calls", "stats", run).out)
    assert (found["recorded answers"], found["of these in no trace"]) == (str(N_CALLS), "0")
    assert rows(run, "calls") == before
    assert dialoom("run", job, "--replay", run, "--log-format", "quiet").status == 0
    assert_bit_for_bit(run, tmp_path / "runs" / "small-replay")


def test_bound_needs_a_tokenizer(tmp_path: Path, dialoom: Command) -> None:
    dialoom("run", write_job(tmp_path, DIALOGUES[:1]), "--log-format", "quiet")
    done = dialoom("calls", "bound", tmp_path / "runs" / "small")
    assert done.status == 2
    assert "no engine of this run has a tokenizer here" in done.err


@pytest.mark.parametrize("what", ["stats", "list", "prune", "bound"])
def test_no_run_there(tmp_path: Path, dialoom: Command, what: str) -> None:
    done = dialoom("calls", what, tmp_path / "nothing")
    assert done.status == 2
    assert done.err.startswith("error: ")
    assert "there is no run here" in done.err


def test_replay_is_bit_for_bit_and_asks_no_engine(tmp_path: Path, dialoom: Command) -> None:
    """Random answers, two engines, refused prompts: all come back, from a folder that was moved."""
    records = [*DIALOGUES, chat("long", "hi", "x" * 5000, "bye")]
    engine = {"use": "scripted", "rule": "support.rules:dice", "context_tokens": 1000}
    methods = [TINY, TINY | {"name": "two", "calls": 1}]
    job = write_job(tmp_path, records, methods=methods, engines={"main": engine}, trials=2)
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    run = tmp_path / "elsewhere"
    (tmp_path / "runs" / "small").rename(run)
    assert [t["outcome"] for t in rows(run, "turns") if t["dialogue_id"] == "long"].count("prompt_too_long") == 4
    done = dialoom("run", job, "--replay", run, "--log-format", "quiet")
    assert done.status == 0, done.err
    again = tmp_path / "runs" / "small-replay"
    assert_bit_for_bit(run, again)
    calls = rows(again, "calls")
    assert all(c["replayed"] or c["error"] for c in calls)
    assert {c["replica"] for c in calls if not c["error"]} == {"log"}
    assert {r["paid_prompt_tokens"] for r in rows(again, "dialogues")} == {0}


def test_a_sweep_is_replayed_cell_by_cell(tmp_path: Path, dialoom: Command) -> None:
    """Random answers of two engines, one of them made by cells: none is asked again, and each cell has its own."""
    engine = {"use": "scripted", "rule": "support.rules:dice", "in_actor": True}
    sweep = {"grid": {"engines.main.model": ["a", "b"], "methods.0.calls": [1, 2]}}
    job = write_job(tmp_path, DIALOGUES, engines={"main": engine}, sweep=sweep)
    run, again = tmp_path / "runs" / "small", tmp_path / "runs" / "small-replay"
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    started = (RunFolder(run).read_json("run.json") or {})["engines"]
    assert set(started) == {"main", "main-2"}
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    assert (RunFolder(run).read_json("run.json") or {})["engines"] == started, "nothing was owed, so none was started"
    done = dialoom("run", job, "--replay", run, "--log-format", "quiet")
    assert done.status == 0, done.err
    assert_bit_for_bit(run, again)
    assert (RunFolder(again).read_json("run.json") or {})["engines"] == {}, "no engine was started"
    assert {c["replica"] for c in rows(again, "calls")} == {"log"}
    assert len({c["cell"] for c in rows(again, "calls")}) == 4
    assert {c["model"] for c in rows(again, "calls") if c["cell"] == "model=b,calls=1"} == {"b"}


def test_many_recorded_calls_are_indexed_once_and_answer_all_the_same(
    tmp_path: Path, dialoom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "WORTH_BYTES", 1)
    job = write_job(tmp_path, DIALOGUES, run={"workers": 2})
    run, again = tmp_path / "runs" / "small", tmp_path / "runs" / "again"
    assert dialoom("run", job, "--set", "data.limit=6", "--log-format", "quiet").status == 0
    assert not list((run / "calls").glob("*.index")), "nothing was recorded before"
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    assert [p.name for p in (run / "calls").glob("*.index")] == ["00002.index"]
    assert len(rows(run, "calls")) == N_CALLS

    reusing = ("--reuse", run, "--set", "name=again", "--log-format", "quiet")
    assert dialoom("run", job, *reusing).status == 0
    assert [p.name for p in (again / "calls").glob("*.index")] == ["00001.index"]
    assert all(c["replayed"] for c in rows(again, "calls"))
    assert not list((again / "calls").glob("*.calls")), "nothing was paid"
    assert_bit_for_bit(run, again)


def test_vectors_are_paid_once(tmp_path: Path, dialoom: Command) -> None:
    """They are counted, found again by a rerun, kept by prune, and replayed without an engine."""
    near = {"use": "support.near_method:PLUGIN", "name": "near"}
    job = write_job(tmp_path, DIALOGUES, methods=[near])
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    run = tmp_path / "runs" / "small"
    asked = rows(run, "calls")
    turns = N_CALLS // 2
    vectors = [c for c in asked if c["finish_reason"] == "vectors"]
    assert (len(asked), len(vectors)) == (2 * turns, turns)
    assert {r["dialogue_id"]: r["n_calls"] for r in rows(run, "dialogues")}["d2"] == 6
    paid = {c["digest"] for c in vectors if not c["replayed"]}
    assert len(paid) == len({c["digest"] for c in vectors}) == 3, "one call for each of three texts"
    assert dialoom("calls", "prune", run).out.endswith(" 0 dropped\n")

    assert dialoom("run", job, "--reuse", run, "--set", "name=again", "--log-format", "quiet").status == 0
    assert all(c["replayed"] for c in rows(tmp_path / "runs" / "again", "calls"))
    assert dialoom("run", job, "--replay", run, "--log-format", "quiet").status == 0
    assert_bit_for_bit(run, tmp_path / "runs" / "small-replay")


def test_one_question_with_two_answers_is_replayed_as_it_was(tmp_path: Path, dialoom: Command) -> None:
    """Two workers ask the same at the same time, and are answered differently."""
    records = [chat(f"d{i}", "good") for i in range(300)]  # more than one worker takes at once, be the other late
    engine = {"use": "scripted", "rule": "support.rules:dice", "latency_s": 4.0, "concurrency": 40}
    odd = {"use": "support.odd_method:PLUGIN", "name": "odd"}
    job = write_job(tmp_path, records, methods=[odd], engines={"main": engine}, run={"workers": 2})
    run = tmp_path / "runs" / "small"
    assert dialoom("run", job, "--log-format", "quiet").status == 0
    answers = {c["text"] for c in rows(run, "calls")}
    assert len(answers) == 2, "both workers asked"
    assert dialoom("run", job, "--replay", run, "--log-format", "quiet").status == 0
    assert_bit_for_bit(run, tmp_path / "runs" / "small-replay")


def test_a_run_that_reused_calls_can_be_replayed(tmp_path: Path, dialoom: Command, monkeypatch: Any) -> None:
    job = write_job(tmp_path, DIALOGUES, engines={"main": {"use": "scripted", "rule": "support.rules:dice"}})
    monkeypatch.chdir(tmp_path)
    assert dialoom("run", job, "--set", "data.limit=6", "--set", "name=first", "--log-format", "quiet").status == 0
    reusing = ("--reuse", "runs/first", "--set", "name=second", "--log-format", "quiet")
    assert dialoom("run", job, *reusing).status == 0
    run = tmp_path / "runs" / "second"
    assert {c["replayed"] for c in rows(run, "calls")} == {True, False}
    assert dialoom("run", job, "--replay", run, "--log-format", "quiet").status == 0
    assert_bit_for_bit(run, tmp_path / "runs" / "small-replay")


def test_a_call_that_was_not_recorded_is_said(tmp_path: Path, dialoom: Command) -> None:
    job = write_job(tmp_path, DIALOGUES, engines={"main": SCRIPTED})
    dialoom("run", job, "--log-format", "quiet")
    write_data(tmp_path / "data.jsonl", [*DIALOGUES, chat("new", "never asked")])
    done = dialoom("run", job, "--replay", tmp_path / "runs" / "small", "--log-format", "quiet")
    assert done.status == 3
    run = tmp_path / "runs" / "small-replay"
    found = {r["dialogue_id"]: (r["outcome"], r["error_kind"]) for r in rows(run, "dialogues")}
    assert found.pop("new") == ("infrastructure", "not_recorded")
    assert set(found.values()) == {("accepted", None)}
    (call,) = [c for c in rows(run, "calls") if c["error"]]
    assert "new turn 0 call 0: this call is not in the call log of" in call["error"]


def test_there_is_nothing_to_replay(tmp_path: Path, dialoom: Command) -> None:
    job = write_job(tmp_path, DIALOGUES)
    done = dialoom("run", job, "--replay", tmp_path / "nothing")
    assert done.status == 2
    assert "there is no run here" in done.err
