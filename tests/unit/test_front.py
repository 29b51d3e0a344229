"""The Pareto front drawn at the end of a run: in a process of its own, and no run depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom import plot
from dialoom.front import MOST_SYSTEMS, MOST_UNITS, PLOTS, draw_front
from dialoom.runtime.folder import RunFolder
from support.systems import write_sweep

CELLS = {"a": {"k": 1}, "b": {"k": 2}}


def with_old_plots(path: Path) -> RunFolder:
    folder = RunFolder(path)
    for name in PLOTS:
        folder.put(name, b"of an earlier session")
    return folder


def test_two_systems_are_drawn(tmp_path: Path) -> None:
    folder = with_old_plots(write_sweep(tmp_path / "sweep", CELLS, right={"a": 1, "b": 3}))
    assert draw_front(folder, ["joint_goal"], systems=2, units=24) == ""
    assert (folder.read("pareto.png") or b"").startswith(b"\x89PNG")
    assert b"joint_goal" in (folder.read("pareto.html") or b"")


@pytest.mark.parametrize(("systems", "units"), [(1, 24), (MOST_SYSTEMS + 1, 24), (2, MOST_UNITS + 1)])
def test_what_is_not_drawn_leaves_no_older_plot(tmp_path: Path, systems: int, units: int) -> None:
    folder = with_old_plots(write_sweep(tmp_path / "sweep", CELLS, right={"a": 1, "b": 3}))
    assert draw_front(folder, [], systems=systems, units=units) == ""
    assert [folder.read(name) for name in PLOTS] == [None, None]


def test_without_the_libraries_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "lacking", lambda: ["altair"])
    folder = with_old_plots(tmp_path)
    assert draw_front(folder, [], systems=2, units=2) == ""
    assert folder.read("pareto.png") is None


def test_a_failure_is_a_note_in_one_line(tmp_path: Path) -> None:
    folder = with_old_plots(tmp_path)
    note = draw_front(folder, [], systems=2, units=2)
    assert note.startswith("no Pareto plot: ")
    assert "\n" not in note
    assert folder.read("pareto.png") is None
