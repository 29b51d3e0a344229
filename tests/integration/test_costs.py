"""What a run says it paid, against what its sessions spent: calls of units that were stopped half-way included."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.costs import costs, run_paid
from dialoom.errors import EngineError
from dialoom.run import run
from dialoom.runtime.ending import Ending
from dialoom.runtime.engine_time import engine_time
from dialoom.runtime.folder import RunFolder
from support.command import command
from support.jobs import SCRIPTED, chat, small_plan

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("ray")]

DIALOGUES = [chat(f"d{i}", "hello", "bye") for i in range(40)]
PRICES = {"own": {"input": 1e6, "output": 1e6, "gpu_hour": 36.0}}


def test_all_sessions_together_are_what_was_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = SCRIPTED | {"in_actor": True, "concurrency": 4, "latency_s": 0.1, "price": "own"}
    fields = {"engines": {"main": engine}, "prices": PRICES}
    first = run(small_plan(tmp_path, DIALOGUES, limits={"cost_usd": 400}, **fields))
    assert first.ending is Ending.LIMIT
    early = first.folder.read_json("run.json") or {}
    again = run(small_plan(tmp_path, DIALOGUES, **fields))
    assert again.status == 0
    assert again.progress.counts["replayed"], "the test is about calls whose rows do not say that they were paid"
    folder = RunFolder(again.folder.path)
    record = folder.read_json("run.json") or {}
    paid, (cost,) = run_paid(folder), costs(folder).values()
    assert paid is not None
    spent = first.progress.counts["cost_usd"] + again.progress.counts["cost_usd"]
    assert paid.tokens_usd == pytest.approx(spent)
    assert paid.total_usd == pytest.approx(paid.rowless_usd + (cost.paid_usd or 0.0))
    assert 0 < paid.rowless_usd < first.progress.counts["cost_usd"]
    assert cost.attributed_usd == pytest.approx(paid.total_usd)
    times = [r["engine_time"]["main"]["replica_s"] for r in (early, record)]
    assert 0 < times[0] < times[1]
    assert paid.gpu_usd == pytest.approx(times[1] * 0.01)
    assert record["prices"]["main"]["gpu_hour"] == 36.0
    assert len(folder.names("engine_time", ".json")) == 2
    shown = command(monkeypatch, capsys)("show", str(folder.path))
    assert f"paid          ${paid.total_usd:,.2f} by all sessions" in shown.out


def test_the_time_in_which_an_engine_loads_is_paid_also_where_it_never_comes_up(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"dialogue_id": "d0", "turn": 0, "answers": ["a", "b"]}\n')
    engine = {"use": "scripted", "answers": str(answers), "in_actor": True, "price": "own"}
    plan = small_plan(tmp_path, [chat("d0", "hello")], engines={"main": engine}, prices=PRICES)
    answers.rename(tmp_path / "away")
    with pytest.raises(EngineError, match=r"answers\.jsonl"):
        run(plan)
    folder = RunFolder(tmp_path / "runs" / "small")
    loading = engine_time(folder)["main"]
    assert loading["gpu_usd"] == pytest.approx(loading["replica_s"] * 0.01)
    assert loading["replica_s"] > 0
    (tmp_path / "away").rename(answers)
    assert run(plan).status == 0
    assert (folder.read_json("run.json") or {})["engine_time"]["main"]["replica_s"] > loading["replica_s"]
