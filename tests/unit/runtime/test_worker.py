"""The worker without Ray: what it commits, and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.errors import StorageError
from dialoom.outcome import Outcome
from dialoom.runtime import parts, worker
from dialoom.runtime.calllog import SUFFIX, scan
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from dialoom.runtime.worker import Lease, Report, Worker
from support.jobs import SCRIPTED, small_plan


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker does to the process it owns is not done to this one."""
    monkeypatch.setattr(worker, "own_process_group", lambda: None)
    monkeypatch.setattr(worker, "_settle", lambda: None)


def lease(plan: Plan, dialogue_id: str) -> Lease:
    dialogue = Dialogue(dialogue_id, (Turn(Speaker.USER, f"{dialogue_id} speaks"),))
    return Lease(dialogue.to_json(), tuple(plan.units(dialogue_id)), dialogue.content_hash())


def served(plan: Plan, folder: RunFolder, n_dialogues: int) -> list[Report]:
    """The reports of a worker that gets so many dialogues and is stopped."""

    async def run() -> list[Report]:
        made = Worker(plan, str(folder.path), 1, "w0", {})
        await made.start()
        reports = [await made.exchange([lease(plan, f"d{i}") for i in range(n_dialogues)])]
        while reports[-1].running:
            reports.append(await made.exchange([]))
        return [*reports, await made.stop()]

    return asyncio.run(run())


def digests(folder: RunFolder, table: str = "") -> set[str]:
    """Of the calls in the parts, or in the call log."""
    if not table:
        return {d.hex() for name in folder.names("calls", SUFFIX) for d, _, _ in scan(folder.fetch(name))}
    found: set[str] = set()
    for name in folder.names("parts", ".part"):
        found |= set(parts.decode(folder.fetch(name).read_bytes())[table].column("digest").to_pylist())
    return found


def test_a_unit_is_committed_with_its_calls_in_the_log(tmp_path: Path, folder: RunFolder) -> None:
    reports = served(small_plan(tmp_path), folder, 5)
    done = [(key.dialogue_id, outcome) for r in reports for key, outcome in r.done]
    assert sorted(done) == [(f"d{i}", Outcome.ACCEPTED) for i in range(5)]
    assert digests(folder, "calls")
    assert digests(folder, "calls") == digests(folder)
    assert not reports[-1].trouble


def test_nothing_is_committed_whose_calls_cannot_be_kept(
    tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a unit would be done, and could never be replayed."""

    def full(*_: Any) -> int:
        raise StorageError("no space left", where="calls")

    monkeypatch.setattr(RunFolder, "append", full)
    reports = served(small_plan(tmp_path), folder, 5)
    assert not any(r.done for r in reports)
    assert "call log: calls: no space left" in reports[-1].trouble
    assert "finished units could not be committed" in reports[-1].trouble
    assert not folder.names("parts", ".part")


def falling_back(folder: Path, **engine: Any) -> Plan:
    method = {"use": "support.tiny_method:PLUGIN", "name": "tiny", "calls": 1, "falls_back": True}
    failing = SCRIPTED | {"fail_kind": "request_refused", "fail_times": None, "concurrency": 1} | engine
    return small_plan(folder, methods=[method], engines={"main": failing}, run={"commit_s": 0.1})


def drained(plan: Plan, folder: RunFolder, n_dialogues: int, until: Callable[[Report], bool]) -> list[Report]:
    """The reports of a worker that is drained once a report is as wanted."""

    async def run() -> list[Report]:
        made = Worker(plan, str(folder.path), 1, "w0", {})
        await made.start()
        reports = [await made.exchange([lease(plan, f"d{i}") for i in range(n_dialogues)])]
        while not until(reports[-1]):
            reports.append(await made.exchange([]))
        reports.append(await made.exchange([], drain=Outcome.INTERRUPTED))
        return [*reports, await made.stop()]

    return asyncio.run(run())


def ends(reports: list[Report]) -> Counter[Outcome]:
    return Counter(outcome for report in reports for _, outcome in report.done)


def test_no_unit_stands_that_an_engine_refused_which_refuses_everything(tmp_path: Path, folder: RunFolder) -> None:
    """Its settings are wrong: once they are mended, all of the dialogues are owed."""
    plan = falling_back(tmp_path, fail_share=1.0, latency_s=0.002)
    reports = drained(plan, folder, 60, lambda report: report.fatal is not None)
    assert "20 were refused: failure injected" in str(reports[-1].fatal)
    assert ends(reports).keys() <= {Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED}
    assert ends(reports).total() == 60


def test_a_unit_that_is_in_doubt_when_the_run_stops_is_owed(tmp_path: Path, folder: RunFolder) -> None:
    plan = falling_back(tmp_path, fail_share=1.0, latency_s=0.05)
    reports = drained(plan, folder, 10, lambda report: True)
    assert ends(reports) == {Outcome.INTERRUPTED: 10}


def test_a_refused_unit_stands_where_the_engine_answers_others(tmp_path: Path, folder: RunFolder) -> None:
    found = ends(served(falling_back(tmp_path, fail_share=0.5), folder, 40))
    assert found.keys() == {Outcome.ACCEPTED, Outcome.FALLBACK}
    assert found.total() == 40


def test_refused_units_stand_where_nothing_else_is_left_to_run(tmp_path: Path, folder: RunFolder) -> None:
    assert ends(served(falling_back(tmp_path, fail_share=1.0), folder, 5)) == {Outcome.FALLBACK: 5}
