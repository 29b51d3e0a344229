"""Places where a process dies or waits, tried in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dialoom.faults import read_faults

pytestmark = pytest.mark.timeout(60)

PASSES = "from dialoom.faults import fault_point\nfor _ in range(3): fault_point('rename', 'parts'); print('passed')"


def passed(faults: str, once: str = "") -> tuple[int, int]:
    """Exit status, and how often of three the place ``rename.parts`` was passed."""
    env = os.environ | {"DIALOOM_FAULTS": faults, "DIALOOM_FAULTS_ONCE": once, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run([sys.executable, "-c", PASSES], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.count("passed")


def test_words_are_read() -> None:
    assert read_faults("") == {}
    assert read_faults("answer:0.5,rename:1:0.2") == {"answer": (0.5, 0.0), "rename": (1.0, 0.2)}


@pytest.mark.parametrize("words", ["answer", "answer:often"])
def test_words_that_say_nothing_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|convert"):
        read_faults(words)


@pytest.mark.parametrize(
    ("faults", "status", "times"),
    [
        ("", 0, 3),
        ("rename:1", -signal.SIGKILL, 0),
        ("rename.parts:1", -signal.SIGKILL, 0),
        ("rename.scores:1", 0, 3),
        ("rename:0", 0, 3),
        ("rename:1:0.001", 0, 3),
    ],
)
def test_a_process_dies_where_it_is_told(faults: str, status: int, times: int) -> None:
    assert passed(faults) == (status, times)


def test_once_for_all_processes(tmp_path: Path) -> None:
    assert passed("rename.parts:1", str(tmp_path)) == (-signal.SIGKILL, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["rename.parts"]
    assert passed("rename.parts:1", str(tmp_path)) == (0, 3)
