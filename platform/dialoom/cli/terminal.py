"""What the commands print: errors, the progress line, tables. Untrusted text passes :func:`safe` on its way."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import orjson
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dialoom.errors import DialoomError, JobError
from dialoom.registry import did_you_mean
from dialoom.text import printable

if TYPE_CHECKING:
    from dialoom.runtime.progress import Progress

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

LINE_S = 10.0


def safe(text: str, limit: int | None = None, style: str = "") -> Text:
    """Untrusted text for the terminal: no markup, no control characters."""
    return Text(printable(text, limit), style=style)


def show_error(error: DialoomError) -> None:
    """What was wrong and where, and on a second line what to do."""
    head = f"{error.where}: {error.what}" if error.where else error.what
    err.print(Text.assemble(("error: ", "bold red"), head), soft_wrap=True)
    if error.hint:
        err.print(Text(f"       {error.hint}", style="dim"), soft_wrap=True)


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def count(number: float) -> str:
    """``950``, ``12.3k``, ``4.5M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


FORMATS = ("auto", "live", "plain", "json", "quiet")


def check_format(style: str) -> None:
    """Raises JobError for a way of showing progress that there is not."""
    if style not in FORMATS:
        raise JobError(f"--log-format {style}: there is no such format", hint=did_you_mean(style, list(FORMATS)))


class ProgressView:
    """One live line on a terminal; a log line every ten seconds (plain or JSON) elsewhere. A context manager."""

    def __init__(self, style: str = "auto", unit: str = "dialogues") -> None:
        self._style = ("live" if err.is_terminal else "plain") if style == "auto" else style
        self._unit = unit
        self._live: Live | None = None
        self._last_line_s = 0.0
        self._last_phase = ""
        self._final: Progress | None = None

    def __enter__(self) -> ProgressView:
        if self._style == "live":
            self._live = Live(Text("starting"), console=err, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._final is not None and self._style != "quiet":
            self._write(self._final)

    def __call__(self, progress: Progress) -> None:
        self._final = progress
        if self._live is not None:
            self._live.update(progress_line(progress, self._unit))
            return
        now = time.monotonic()
        if self._style == "quiet" or (now - self._last_line_s < LINE_S and progress.phase == self._last_phase):
            return
        self._last_line_s, self._last_phase = now, progress.phase
        self._write(progress)

    def _write(self, progress: Progress) -> None:
        if self._style == "json":
            record = {"at": time.time(), "phase": progress.phase, "total": progress.total, **progress.metrics()}
            line = orjson.dumps({**record, "trouble": progress.trouble or None}).decode()
        else:
            line = progress_line(progress, self._unit).plain
        with contextlib.suppress(OSError):  # nobody reads any more: the run goes on
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def progress_line(progress: Progress, unit: str) -> Text:
    """The one line: phase or bar, units, rates, shares, time left, and what is wrong right now."""
    line = Text(no_wrap=True, overflow="ellipsis")
    if progress.phase != "running":
        line.append(progress.phase, style="cyan")
        line.append("  ")
    total = progress.total
    if total:
        filled = int(20 * progress.done / total)
        line.append("━" * filled, style="green").append("━" * (20 - filled), style="bright_black").append(" ")
    line.append(f"{progress.done:,}" + (f"/{total:,}" if total is not None else "") + f" {unit}", style="bold")
    if progress.skipped:
        line.append(f" (+{progress.skipped:,} done before)", style="dim")
    _, calls_per_s, tokens_per_s = progress.rates()
    line.append(f" · {count(calls_per_s)} calls/s · {count(tokens_per_s)} tokens/s")
    line.append(f" · corrected {progress.share('corrected'):.1%} · fallback {progress.share('fallback'):.1%}")
    if progress.counts["retries"]:
        line.append(f" · {count(progress.counts['retries'])} retries", style="yellow")
    left = progress.left_s()
    if left is not None and progress.phase == "running":
        line.append(f" · {duration(left)} left", style="cyan")
    if progress.trouble:
        line.append(f" · {printable(progress.trouble, 160)}", style="yellow")
    return line


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the house look; the columns named in ``right`` are figures."""
    made = Table(title=safe(title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        figure = column in right
        made.add_column(
            safe(column), justify="right" if figure else "left", style="", header_style="dim", no_wrap=figure
        )
    return made
