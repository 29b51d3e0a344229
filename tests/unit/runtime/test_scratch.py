"""Scratch folders: gone at the end, gone after a kill, never taken from a living process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dialoom.runtime.index import Index
from dialoom.runtime.scratch import Scratch

HOLD = """
import sys
from dialoom.runtime.scratch import Scratch
scratch = Scratch("held-")
(scratch.path / "file").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path


def holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a scratch folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(place: Path) -> None:
    (dead, left), (living, used) = holder(place), holder(place)
    other = place / "other-folder"
    other.mkdir()
    dead.kill()
    dead.communicate()
    assert left.exists()
    with Scratch("held-") as own:
        assert not left.exists()
        assert (used / "file").read_text() == "x"
        Scratch("held-").close()
        assert own.exists(), "nor does a process take its own"
    living.communicate("")
    assert list(place.iterdir()) == [other]


def test_starts_at_the_same_time_take_nothing_from_each_other(place: Path) -> None:
    def use(number: int) -> bool:
        with Scratch("held-") as path:
            (path / "file").write_text(str(number))
            Scratch("held-").close()
            return (path / "file").read_text() == str(number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))
    assert list(place.iterdir()) == []


def test_links_and_files_are_left_alone(place: Path) -> None:
    (place / "kept").mkdir()
    (place / "held-link").symlink_to(place / "kept")
    (place / "held-file").write_text("x")
    Scratch("held-").close()
    assert sorted(p.name for p in place.iterdir()) == ["held-file", "held-link", "kept"]


def test_the_index_of_a_killed_run_goes_at_the_next_start(place: Path) -> None:
    left = place / "dialoom-index-left"
    left.mkdir()
    (left / "index.sqlite").write_bytes(b"x" * 100)
    living = Index()
    next_one = Index()
    assert not left.exists()
    assert len(list(place.iterdir())) == 2
    living.close()
    next_one.close()
