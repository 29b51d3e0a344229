"""``dialoom compare``: a sweep and several runs, sorted, plotted, beside reported results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dialoom.cli.compare import fitted, table_width
from dialoom.overview import overview
from support.command import Command, command
from support.systems import JGA, system, write_sweep

CELLS = {f"k={k},p={p}": {"k": k, "p": p} for k in (2, 4, 6) for p in ("text", "json")}
CELLS |= {f"k={k},p=tools": {"k": k, "p": "tools"} for k in (2, 4, 6)}
RIGHT = {name: 1 + i % 4 for i, name in enumerate(CELLS)}


@pytest.fixture(name="dialoom")
def _dialoom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


@pytest.fixture(name="sweep")
def _sweep(tmp_path: Path) -> Path:
    usd = {name: 0.001 * right for name, right in RIGHT.items()}
    return write_sweep(tmp_path / "sweep", CELLS, right=RIGHT, usd=usd)


def test_a_sweep_is_a_row_a_cell_best_first(dialoom: Command, sweep: Path) -> None:
    done = dialoom("compare", sweep, "-d", "joint_goal")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].strip() == "9 systems"
    assert lines[1].split()[:5] == ["#", "k", "p", "joint_goal", "%"]
    shares = [float(line.split()[3]) for line in lines[2:11]]
    assert shares == sorted(shares, reverse=True)
    assert "Differences from tracker.k=2,p=text in joint_goal" in done.out


def test_sorted_by_cost_the_cheapest_comes_first(dialoom: Command, sweep: Path) -> None:
    done = dialoom("compare", sweep, "-d", "joint_goal", "--sort", "cost", "--as", "json")
    record = json.loads(done.out)
    costs = [s["figures"]["cost_usd"]["value"] for s in record["overview"]]
    assert costs == sorted(costs)
    assert record["sorted_by"] == "cost_usd"
    assert len(record["systems"]) == len(CELLS)


def test_an_unknown_metric_is_an_error_with_the_nearest(dialoom: Command, sweep: Path) -> None:
    done = dialoom("compare", sweep, "-d", "joint_goal", "--sort", "joint_gaol")
    assert done.status == 2
    assert "no system has a metric 'joint_gaol'" in done.err
    assert "Did you mean 'joint_goal'?" in done.err


def test_an_unknown_metric_is_found_before_anything_is_scored(
    dialoom: Command, sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dialoom.compare.scored_systems", lambda *_, **__: pytest.fail("scored"))
    done = dialoom("compare", sweep, "--plot-metric", "joint_gaol")
    assert done.status == 2
    assert "Did you mean 'joint_goal'?" in done.err


def test_a_plot_beside_the_table(dialoom: Command, sweep: Path, tmp_path: Path) -> None:
    done = dialoom(
        "compare", sweep, "-d", "joint_goal", "-d", "slot_f1", "--plot", tmp_path / "f.json", "--plot-metric", "slot_f1"
    )
    assert done.status == 0, done.err
    text = (tmp_path / "f.json").read_text()
    assert "slot_f1" in json.loads(text)["title"]["text"]
    assert "US$ per 1,000 dialogues" in text
    assert "plot written to" in done.err


def test_a_plot_that_cannot_be_written_is_said_before_any_scoring(dialoom: Command, tmp_path: Path) -> None:
    done = dialoom("compare", tmp_path / "absent", "--plot", "front.gif")
    assert done.status == 2
    assert "knows no ending '.gif'" in done.err


def test_two_runs_stand_side_by_side_with_their_names(dialoom: Command, tmp_path: Path) -> None:
    runs = [write_sweep(tmp_path / name, {"a": {"k": 1}}, right={"a": n}) for name, n in (("one", 1), ("two", 3))]
    done = dialoom("compare", *runs, "-d", "joint_goal", "--as", "markdown")
    assert "| # | run | joint_goal % |" in done.out
    assert "| 1 | two |" in done.out
    assert "| definition | one/tracker.a | two/tracker.a |" in done.out


def test_reported_results_of_ones_own_in_every_form(dialoom: Command, sweep: Path, tmp_path: Path) -> None:
    (sweep / "job.yaml").write_text("data: {reader: chat}\n")
    own = tmp_path / "own.yaml"
    result = {"data": "logs", "method": "Theirs", "model": "big", "figure": JGA, "value": 0.9, "source": "report 7"}
    sets = {"logs": {"title": "Our logs", "dialogues": 12, "reader": "chat"}}
    own.write_text(yaml.safe_dump({"as_of": "2026-12-01", "data_sets": sets, "results": [result]}))
    for form, row in (("table", "reported: report 7"), ("markdown", "| Theirs | big |"), ("latex", "Theirs & big &")):
        done = dialoom("compare", sweep, "-d", "joint_goal", "--reported", own, "--as", form)
        assert done.status == 0, done.err
        assert row in done.out
        assert "Reported on Our logs, beside these runs" in done.out
    without = dialoom("compare", sweep, "-d", "joint_goal")
    assert "Reported" not in without.out


def test_one_system_stands_beside_reported_results_and_nothing_else(dialoom: Command, tmp_path: Path) -> None:
    run = write_sweep(tmp_path / "one", {"": {}}, right={"": 2})
    alone = dialoom("compare", run, "-d", "joint_goal")
    assert alone.status == 2
    assert "nothing to compare" in alone.err
    (run / "job.yaml").write_text("data: {reader: chat}\n")
    own = tmp_path / "own.yaml"
    result = {"data": "logs", "method": "Theirs", "model": "big", "figure": JGA, "value": 0.9, "source": "report 7"}
    sets = {"logs": {"title": "Our logs", "dialogues": 12, "reader": "chat"}}
    own.write_text(yaml.safe_dump({"as_of": "2026-12-01", "data_sets": sets, "results": [result]}))
    beside = dialoom("compare", run, "-d", "joint_goal", "--reported", own)
    assert beside.status == 0, beside.err
    assert "reported: report 7" in beside.out


def test_a_narrow_terminal_gets_fewer_columns_and_a_note() -> None:
    systems = [
        system(f"cell-{i}", {JGA: 0.1 * i, "tokens": 5.0, "latency_s": 1.0}, settings={"method.settings.long_name": i})
        for i in range(6)
    ]
    ranked = overview(systems)
    assert len(fitted(ranked, 200).columns) == len(ranked.table().columns)
    narrow = fitted(ranked, 48)
    assert table_width(narrow) <= 48
    assert "joint_goal %" in [c.name for c in narrow.columns]
    assert any(note.startswith("No room for") and "long_name" in note for note in narrow.notes)
