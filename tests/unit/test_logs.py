"""Log lines: one JSON object each, whatever is in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.logs import JsonLines, log_to
from support.tmpfs import fill, small_disk

logger = logging.getLogger("dialoom.test_logs")


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """Handlers and settings of this file's tests do not outlive them."""
    root = logging.getLogger("dialoom")
    before = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:], root.level, root.propagate = before


def test_lines_are_json(tmp_path: Path) -> None:
    log_to(tmp_path / "deeper" / "log.jsonl")
    logger.warning("disk %s", "full \x1b[2J\n")
    try:
        raise ValueError("half \ud800")
    except ValueError:
        logger.exception("failed")
    first, second = (orjson.loads(line) for line in (tmp_path / "deeper" / "log.jsonl").read_bytes().splitlines())
    assert first["message"] == "disk full \\x1b[2J\\n"
    assert (first["level"], first["logger"]) == ("warning", "dialoom.test_logs")
    assert first["at"].endswith("Z")
    assert "ValueError: half \\ud800" in second["traceback"]


@given(st.text() | st.just("\ud800"))
def test_any_message_makes_one_line(message: str) -> None:
    record = logging.LogRecord("dialoom", logging.INFO, "", 0, "%s", (message,), None)
    line = JsonLines().format(record)
    assert len(line.splitlines()) == 1
    assert orjson.loads(line)["level"] == "info"


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        handler = log_to(disk / "log.jsonl")
        fill(disk)
        for _ in range(100):
            logger.warning("x" * 1000)
        (disk / "ballast").unlink()
        logger.warning("again")
        handler.close()
        assert (disk / "log.jsonl").read_text().splitlines()[-1].endswith('"message":"again"}')
    assert capsys.readouterr().err == ""


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    log_to(tmp_path / "file" / "log.jsonl")
    logger.warning("x")
    assert capsys.readouterr().err == ""
