"""Whole runs on a real local Ray with the scripted engine: a row for every unit, resume, replay, refusals."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from dialoom.errors import DataError, EngineError, EngineRefused, LimitReached, RunRefused, StorageError
from dialoom.outcome import Outcome
from dialoom.run import RunResult, run
from dialoom.runtime import driver as driver_module
from dialoom.runtime.ending import Ending
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from support.jobs import SCRIPTED, TINY, chat, plan_of, small_plan, write_data, write_job
from support.results import counts, outcomes, rows
from support.tmpfs import fill, small_disk

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray"),
]  # Ray starts slowly


LABELLED = chat("labelled", "I want it", services=["s"])
LABELLED["turns"][0] |= {"state": {"s": {"t0": "never said"}}, "intent": {"s": "find"}}
MIXED: list[dict[str, Any] | bytes] = [
    *(chat(f"good-{i}", "hello", "and more", services=["s"]) for i in range(30)),
    LABELLED,
    chat("nasty", "a\0b 😀 \x1b[2J", "\ud83d half"),
    chat("poison", "this is POISON"),
    chat("long", "x" * 200_000),
    chat("empty", ""),
    chat("good-0", "the same id again"),
    chat("good-0", "and once more"),
    chat("unknown service", "hello", services=["nowhere"]),
    b'{"dialogue_id": "torn", "turns": [',
    b"not json at all",
    b'{"dialogue_id": "no turns", "turns": []}',
    b"\xff\xfe broken bytes",
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Good and bad records through two methods, twice."""
    folder = tmp_path_factory.mktemp("mixed")
    engine = {"use": "scripted", "rule": "support.rules:nasty", "context_tokens": 20_000, "latency_s": 0.002}
    tiny = TINY | {"poison": "POISON"}
    plan = small_plan(
        folder, MIXED, methods=[tiny, tiny | {"name": "two", "calls": 1}], trials=2, engines={"e": engine}
    )
    return run(plan)


def test_every_unit_has_a_row_whatever_the_input(mixed: RunResult) -> None:
    found = Counter((r["dialogue_id"], r["method"], r["trial"]) for r in rows(mixed))
    assert set(found.values()) == {1}
    assert len(found) == len(MIXED) * 4
    assert mixed.ending is Ending.DONE
    assert mixed.status == 3


def test_bad_records_say_what_is_wrong_and_where(mixed: RunResult) -> None:
    bad = {r["dialogue_id"]: r for r in rows(mixed) if r["outcome"] == "bad_input" and r["method"] == "tiny"}
    assert len(bad) == 7
    assert "unknown service 'nowhere'. Allowed: s." in bad["unknown service"]["error"]
    for name in ("good-0~2", "good-0~3"):
        assert "dialogue id 'good-0' was read before" in bad[name]["error"]
    place = str(mixed.folder.path.parents[1] / "data.jsonl")
    places = {"good-0~2": 36, "good-0~3": 37, "unknown service": 38}
    sources = {name: row["source"].split(" (")[0] for name, row in bad.items()}
    assert {n: s for n, s in sources.items() if n in places} == {n: f"{place}:{line}" for n, line in places.items()}
    assert {s for n, s in sources.items() if n not in places} == {f"{place}:{line}" for line in (39, 40, 41, 42)}
    assert {r["error_kind"] for r in bad.values()} == {"bad_input"}


def test_a_bug_of_a_method_costs_its_unit_only(mixed: RunResult) -> None:
    (row,) = [r for r in rows(mixed) if r["dialogue_id"] == "poison" and r["method"] == "two" and r["trial"] == 1]
    assert (row["outcome"], row["error_kind"]) == ("infrastructure", "method")
    assert row["error"].startswith("method two: ValueError: poison. See logs/")
    logged = (mixed.folder.path / row["error"].split("See ")[1].rstrip(".")).read_text()
    assert "Traceback" in logged


def test_a_prompt_that_is_too_long_ends_its_turn(mixed: RunResult) -> None:
    turns = [t for t in rows(mixed, "turns") if t["dialogue_id"] == "long"]
    assert {t["outcome"] for t in turns} == {"prompt_too_long"}
    assert {t["user_text"] for t in turns} == {"x" * 200_000}
    calls = [c for c in rows(mixed, "calls") if c["dialogue_id"] == "long"]
    assert all(c["error"].startswith("prompt_too_long: ") for c in calls)


def test_texts_are_kept_as_they_are(mixed: RunResult) -> None:
    turns = [
        t for t in rows(mixed, "turns") if t["dialogue_id"] == "nasty" and t["method"] == "two" and t["trial"] == 0
    ]
    assert [t["user_text"] for t in turns] == ["a\0b 😀 \x1b[2J", "\\ud83d half"]
    calls = [c for c in rows(mixed, "calls") if c["dialogue_id"] == "nasty"]
    assert all(c["text"].startswith("\0 😀 \\ud800 \x1b[2J ") for c in calls)
    messages = {m["message_id"]: m["content"] for m in rows(mixed, "messages")}
    assert all(i in messages for c in rows(mixed, "calls") for i in c["message_ids"])
    assert len(messages) == len(rows(mixed, "messages"))
    for table in ("dialogues", "turns", "calls", "messages"):
        assert pl.read_parquet(mixed.folder.traces / f"{table}.parquet").height == len(rows(mixed, table))


def test_sums_of_calls_agree_between_the_tables(mixed: RunResult) -> None:
    calls, turns = rows(mixed, "calls"), rows(mixed, "turns")
    assert counts(mixed)[0] == sum(1 for c in calls if not c["error"])
    for name in ("prompt_tokens", "output_tokens"):
        paid = sum(c[name] or 0 for c in calls)
        assert paid == sum(t[name] for t in turns) == mixed.progress.counts[name]
        assert paid == sum(r[name] or 0 for r in rows(mixed))
    assert sum(r["n_calls"] for r in rows(mixed)) == len(calls) == sum(t["n_calls"] for t in turns)


def blocks(language: str) -> list[str]:
    """The queries of the documentation in one language."""
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_queries_of_the_documentation(mixed: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder = str(mixed.folder.path)
    (python,) = blocks("python")
    exec(compile(python, "docs/traces.md", "exec"), {"RUN": run_folder})
    shown = capsys.readouterr().out
    assert "prompt_too_long" in shown
    errors, prompt = (q.replace("{RUN}", run_folder).replace("{DIALOGUE}", "good-1") for q in blocks("sql"))
    sql = duckdb.connect().execute
    (worst,) = sql(errors).fetchall()
    assert worst[:4] == ("s", "t0", 4, "never said")
    asked = sql(prompt).fetchall()
    calls = [c for c in rows(mixed, "calls") if c["dialogue_id"] == "good-1"]
    assert len(asked) == sum(len(c["message_ids"]) for c in calls)
    assert {r[3] for r in asked if r[2] == 1} == {"system"}
    assert all(r[4].startswith("good-1 ") for r in asked if r[2] == 2)


def test_resume_does_what_is_new_or_changed_and_nothing_else(tmp_path: Path) -> None:
    records: list[dict[str, Any] | bytes] = [*(chat(f"d{i}", "hello", "bye") for i in range(6)), b"{torn"]
    path = write_job(tmp_path, records)
    first = run(plan_of(path))
    assert counts(first) == (24, 0)
    again = run(plan_of(path))
    assert counts(again) == (0, 0)
    assert again.progress.skipped == 7
    assert rows(again) == rows(first)
    assert again.status == first.status == 3

    records[1] = chat("d1", "hello", "something else")
    records[6] = chat("mended", "hello")
    write_data(tmp_path / "data.jsonl", [*records, chat("new", "hello")])
    third = run(plan_of(path))
    assert counts(third) == (2 + 2 + 2, 2)  # the first turn of the changed dialogue is answered by the call log
    assert third.status == 0
    assert outcomes(third) == dict.fromkeys([f"d{i}" for i in range(6)] + ["mended", "new"], "accepted")
    epochs = {r["dialogue_id"]: r["epoch"] for r in rows(third)}
    assert epochs == {f"d{i}": 1 for i in range(6)} | {"d1": 3, "mended": 3, "new": 3}
    changed = [t["user_text"] for t in rows(third, "turns") if t["dialogue_id"] == "d1"]
    assert changed == ["hello", "something else"]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    run(small_plan(tmp_path))
    with pytest.raises(RunRefused, match=r"methods\.tiny\.settings\.calls: 2 -> 3\. Give the job another name"):
        run(small_plan(tmp_path, methods=[TINY | {"calls": 3}]))


def comparable(result: RunResult, table: str) -> list[dict[str, Any]]:
    """Rows without what differs from run to run: who, when, how long."""
    skip = {"worker", "epoch", "started_at", "finished_at", "in_flight", "replica", "queue_s", "run_s", "latency_s"}
    skip |= {"sent_at", "source", "attempts", "replayed", "n_replayed"}
    skip |= {"paid_prompt_tokens", "paid_cached_tokens", "paid_output_tokens", "cost_paid_usd"}
    found = [{k: v for k, v in r.items() if k not in skip} for r in rows(result, table)]
    return sorted(found, key=repr)


def assert_same(one: RunResult, two: RunResult) -> None:
    for table in ("dialogues", "turns", "calls", "messages"):
        assert comparable(one, table) == comparable(two, table)


DIALOGUES = [chat(f"d{i}", *(["hello", "and", "bye"][: 1 + i % 3])) for i in range(40)]


def test_an_engine_in_an_actor_gives_the_same_traces(tmp_path: Path) -> None:
    engine = SCRIPTED | {"fail_share": 0.2, "fail_kind": "engine_busy", "latency_s": 0.001}
    local = run(small_plan(tmp_path / "local", DIALOGUES, engines={"main": engine}))
    hosted = run(
        small_plan(tmp_path / "hosted", DIALOGUES, engines={"main": engine | {"in_actor": True, "replicas": 2}})
    )
    assert local.status == hosted.status == 0
    assert_same(local, hosted)
    assert counts(local) == counts(hosted) == (sum(1 + i % 3 for i in range(40)) * 2, 0)
    for result in (local, hosted):
        assert result.progress.counts["retries"] == sum(c["attempts"] - 1 for c in rows(result, "calls")) > 0
    assert {c["replica"] for c in rows(hosted, "calls")} == {"main/0", "main/1"}


def test_recorded_calls_answer_a_later_run_bit_for_bit(tmp_path: Path) -> None:
    engine = {"use": "scripted", "rule": "support.rules:nasty"}
    first = run(small_plan(tmp_path / "a", DIALOGUES, engines={"main": engine}))
    broken = engine | {"fail_share": 1.0, "fail_kind": "engine_refused", "fail_times": None}
    second = run(small_plan(tmp_path / "b", DIALOGUES, engines={"main": broken}, run={"reuse": [str(first.folder)]}))
    assert second.status == 0
    assert counts(second) == (0, counts(first)[0])
    assert_same(first, second)
    for row in rows(second):
        assert (row["n_replayed"], row["paid_prompt_tokens"]) == (row["n_calls"], 0)
        assert row["prompt_tokens"] > 0


def test_an_engine_that_refuses_ends_the_run_and_says_so(tmp_path: Path) -> None:
    engine = SCRIPTED | {"fail_share": 1.0, "fail_kind": "engine_refused", "concurrency": 2, "latency_s": 0.005}
    result = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}))
    assert (result.ending, result.status) == (Ending.ENGINE, 4)
    assert isinstance(result.error, EngineRefused)
    assert set(outcomes(result).values()) <= {"infrastructure", "interrupted"}
    assert len(outcomes(result)) == len(DIALOGUES)
    assert (result.folder.read_json("run.json") or {})["status"] == "engine"
    mended = run(small_plan(tmp_path, DIALOGUES))
    assert mended.status == 0
    assert set(outcomes(mended).values()) == {"accepted"}


def test_an_engine_that_does_not_start_is_told_in_run_json(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"dialogue_id": "d0", "turn": 0, "answers": ["a", "b"]}\n')
    engine = {"use": "scripted", "answers": str(answers), "in_actor": True}
    plan = small_plan(tmp_path, [chat("d0", "hello")], engines={"main": engine})
    answers.rename(tmp_path / "away")
    with pytest.raises(EngineError) as caught:
        run(plan)
    folder = RunFolder(tmp_path / "runs" / "small")
    record = folder.read_json("run.json") or {}
    assert (record["status"], record["error"]) == ("engine", str(caught.value))
    assert "answers.jsonl" in record["error"]
    assert record["finished_at"] >= record["created_at"]
    (tmp_path / "away").rename(answers)
    assert run(plan).status == 0
    record = folder.read_json("run.json") or {}
    assert (record["status"], record["error"]) == ("complete", None)


def test_workers_start_while_engines_load(tmp_path: Path) -> None:
    engine = {"use": "support.late_engine:PLUGIN", "rule": "support.rules:nasty"}
    result = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}))
    assert (result.status, result.error) == (0, None)
    assert len(outcomes(result)) == len(DIALOGUES)


def test_passing_failures_cost_nothing_but_tries(tmp_path: Path) -> None:
    engine = SCRIPTED | {"fail_share": 0.5, "fail_times": 3}
    result = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}))
    assert result.status == 0
    assert {c["attempts"] for c in rows(result, "calls")} == {1, 4}


def test_failures_that_last_are_owed(tmp_path: Path) -> None:
    engine = SCRIPTED | {"fail_share": 0.1, "fail_times": None}
    plan = small_plan(
        tmp_path, DIALOGUES, engines={"main": engine}, run={"max_attempts": 2}, limits={"error_share": None}
    )
    result = run(plan)
    assert result.status == 3
    assert set(outcomes(result).values()) == {"accepted", "infrastructure"}
    assert {r["error_kind"] for r in rows(result)} == {None, "engine_down"}
    failed = [c for c in rows(result, "calls") if c["error"]]
    assert {c["attempts"] for c in failed} == {2}
    mended = run(small_plan(tmp_path, DIALOGUES))
    assert set(outcomes(mended).values()) == {"accepted"}
    assert counts(mended)[0] + counts(result)[0] == sum(1 + i % 3 for i in range(40)) * 2


def test_limits_of_a_unit_leave_the_state_it_reached(tmp_path: Path) -> None:
    result = run(small_plan(tmp_path, DIALOGUES, limits={"unit_calls": 3}))
    assert result.status == 0
    found = outcomes(result)
    assert {found["d0"], found["d1"], found["d2"]} == {"accepted", "unit_limit"}
    turns = [t for t in rows(result, "turns") if t["dialogue_id"] == "d1"]
    assert [t["outcome"] for t in turns] == ["accepted", None]
    assert [t["n_calls"] for t in turns] == [2, 1]


def test_a_limit_of_the_job_stops_it_and_the_rest_is_owed(tmp_path: Path) -> None:
    engine = SCRIPTED | {"concurrency": 1, "latency_s": 0.02}
    result = run(small_plan(tmp_path, DIALOGUES, engines={"main": engine}, limits={"tokens": 200}))
    assert (result.ending, result.status) == (Ending.LIMIT, 4)
    assert isinstance(result.error, LimitReached)
    assert set(outcomes(result).values()) == {"accepted", "job_limit"}
    assert len(outcomes(result)) == len(DIALOGUES)
    again = run(small_plan(tmp_path, DIALOGUES))
    assert set(outcomes(again).values()) == {"accepted"}


ODD = [
    "raise", "exit", "cancel", "number as a value", "number as an output", "turn that is none", "no outcome",
    "text as rules", "step of no text", "call of no turn", "message of no text", "unknown role", "broken text",
    "huge number", "nothing", "good",
]  # fmt: skip
HARMLESS = {"broken text", "huge number", "nothing", "good", "number as an output"}
KINDS = dict.fromkeys(HARMLESS) | {"cancel": "interrupted", "message of no text": "engine"}


def test_whatever_a_method_does_every_unit_has_a_row_and_the_run_ends(tmp_path: Path) -> None:
    records = [chat(what, what) for what in ODD]
    odd = {"use": "support.odd_method:PLUGIN", "name": "odd"}
    result = run(small_plan(tmp_path, records, methods=[odd], limits={"error_share": None, "stall_s": 60}))
    assert result.ending is Ending.DONE
    found = outcomes(result)
    assert sorted(found) == sorted(ODD)
    assert {what for what in ODD if found[what] == "accepted"} == HARMLESS
    kinds = {r["dialogue_id"]: r["error_kind"] for r in rows(result)}
    assert kinds == {what: KINDS.get(what, "method") for what in ODD}


def test_a_full_disk_loses_nothing_that_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "STORAGE_PATIENCE_S", 1.0)
    records = [chat(f"d{i}", "hello " + "x" * 300, "bye") for i in range(400)]
    engine = SCRIPTED | {"concurrency": 8, "latency_s": 0.004}
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        plan = small_plan(tmp_path / "job", records, engines={"main": engine}, run={"root": str(disk / "runs")})
        taken: list[Path] = []

        def observe(progress: Any) -> None:
            if progress.outcomes[Outcome.ACCEPTED] and not taken:
                taken.append(fill(disk))

        result = run(plan, observe=observe)
        assert (result.ending, result.status) == (Ending.STORAGE, 4)
        assert isinstance(result.error, StorageError)
        assert "The disk is full: free some space and run the same command again" in str(result.error)
        committed = result.progress.outcomes[Outcome.ACCEPTED]
        assert 0 < committed < len(records)
        taken[0].unlink()
        again = run(plan)
        assert again.status == 0
        assert len(outcomes(again)) == len(records)
        assert again.progress.skipped == committed
        assert again.progress.outcomes[Outcome.ACCEPTED] == len(records) - committed


def test_a_moment_without_room_is_only_a_delay(tmp_path: Path) -> None:
    records = [chat(f"d{i}", "hello", "bye") for i in range(300)]
    engine = SCRIPTED | {"concurrency": 8, "latency_s": 0.004}
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        plan = small_plan(tmp_path / "job", records, engines={"main": engine}, run={"root": str(disk / "runs")})
        taken: list[Path] = []
        trouble: list[str] = []

        def observe(progress: Any) -> None:
            if progress.outcomes[Outcome.ACCEPTED] and not taken:
                taken.append(fill(disk))
            if progress.trouble and not trouble:
                trouble.append(progress.trouble)
                taken[0].unlink()

        result = run(plan, observe=observe)
    assert trouble
    assert "The disk is full" in trouble[0]
    assert result.progress.trouble == ""


def test_a_reader_that_fails_half_way_keeps_what_was_read(tmp_path: Path) -> None:
    data = {"reader": "support.odd_reader:PLUGIN", "paths": "data.jsonl"}
    result = run(small_plan(tmp_path, data=data))
    assert (result.ending, result.status) == (Ending.INPUT, 4)
    assert "failed: RuntimeError: broken \\ud800 on purpose" in str(result.error)
    assert outcomes(result).keys() == {f"d{i}" for i in range(30)}
    with pytest.raises(DataError, match="broken"):
        run(small_plan(tmp_path / "at once", data=data | {"options": {"good": 0}}))


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    result = run(plan)
    with result.folder.locked(), pytest.raises(RunRefused, match="another process is running this job"):
        run(plan)


def test_a_damaged_part_is_done_again(tmp_path: Path) -> None:
    path = write_job(tmp_path, DIALOGUES)
    first = run(plan_of(path))
    for name in first.folder.names("parts", ".part"):
        data = first.folder.read(name) or b""
        (first.folder.path / name).write_bytes(data[: len(data) // 2])
    second = run(plan_of(path))
    assert any("damaged part files were left out" in note for note in second.notes)
    assert counts(second) == (0, counts(first)[0])
    assert_same(first, second)


def test_a_run_json_that_is_none(tmp_path: Path) -> None:
    plan: Plan = small_plan(tmp_path)
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    for content, message in (("{", "is damaged"), ("{}", "is no record of a run")):
        (folder / "run.json").write_text(content)
        with pytest.raises(StorageError, match=message):
            run(plan)
