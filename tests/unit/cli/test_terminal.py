"""The progress line and the small formats."""

from __future__ import annotations

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.cli.terminal import FORMATS, ProgressView, check_format, count, duration, progress_line, safe
from dialoom.errors import JobError
from dialoom.outcome import Outcome
from dialoom.runtime.progress import Progress


def running(monkeypatch: pytest.MonkeyPatch, done: int = 50, total: int | None = 200) -> Progress:
    """Progress ten seconds into a run, on a clock of its own."""
    clock = itertools.chain([100.0], itertools.repeat(110.0))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = Progress(total=total, started=100.0)
    progress.phase = "running"
    progress.sample()
    progress.done = done
    progress.outcomes[Outcome.ACCEPTED] = done
    progress.add({"calls": 300, "replayed": 100, "prompt_tokens": 6000, "output_tokens": 2000, "turns": 100})
    progress.add({"corrected": 25, "fallback": 5, "retries": 7})
    progress.sample()
    return progress


def test_the_line_says_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = running(monkeypatch)
    progress.skipped, progress.trouble = 1234, "disk \x1b[2J full"
    line = progress_line(progress, "dialogues").plain
    assert "━" * 20 in line
    for word in (
        "50/200 dialogues (+1,234 done before)",
        "40 calls/s",
        "800 tokens/s",
        "corrected 25.0%",
        "fallback 5.0%",
        "7 retries",
        "0:30 left",
        "disk \\x1b[2J full",
    ):
        assert word in line


def test_a_total_that_is_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    line = progress_line(running(monkeypatch, total=None), "units").plain
    assert line.startswith("50 units")
    assert "left" not in line


@given(st.integers(0, 500), st.none() | st.integers(0, 500), st.sampled_from(["running", "scoring"]))
def test_any_progress_makes_a_line(done: int, total: int | None, phase: str) -> None:
    progress = Progress(total=total)
    progress.done, progress.phase = done, phase
    assert str(done) in progress_line(progress, "units").plain


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (0.25, "0.2"), (3, "3"), (9999, "9999"), (12_345, "12.3k"), (4_500_000, "4.5M"), (2e9, "2.0G")],
)
def test_counts(number: float, shown: str) -> None:
    assert count(number) == shown


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    progress = running(monkeypatch)
    for style in ("plain", "json", "quiet"):
        with ProgressView(style) as view:
            for _ in range(5):
                view(progress)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == {"plain": 2, "json": 2, "quiet": 0}[style]
        if style == "json":
            record = orjson.loads(lines[0])
            assert (record["phase"], record["total"], record["live/units_done"]) == ("running", 200, 50.0)


def test_a_reader_that_goes_away_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None: ...

    progress = running(monkeypatch)
    monkeypatch.setattr("sys.stderr", Gone())
    with ProgressView("plain") as view:
        view(progress)
        view(progress)
    assert progress.phase == "running", "the run goes on unseen"


@given(st.text())
def test_safe_text_has_no_markup_and_no_control_characters(text: str) -> None:
    shown = safe(text)
    assert shown.spans == []
    assert len(shown.plain.splitlines()) <= 1


def test_formats() -> None:
    for style in FORMATS:
        check_format(style)
    with pytest.raises(JobError, match=r"--log-format jsn: there is no such format\. Did you mean 'json'\?"):
        check_format("jsn")
