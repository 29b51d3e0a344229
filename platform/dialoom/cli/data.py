"""``dialoom data``: public data sets, listed and fetched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.live import Live

    from dialoom.fetch import Progress


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    data = typer.Typer(help="Get public data sets from their publishers.", no_args_is_help=True)
    data.command("fetch")(data_fetch)
    data.command("list")(data_list)
    app.add_typer(data, name="data")


def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set that 'dialoom data list' names.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder that is made; data/NAME by default.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of a mirror, in place of the publisher's.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Fetch anew and replace the folder.")] = False,
) -> None:
    """Download a data set, check it and unpack it; continues where an earlier call broke off.

    A folder that holds it already is only checked.
    """
    from dialoom.cli.terminal import count, out, safe
    from dialoom.fetch import RECORD, fetch

    with _ProgressLine() as line:
        found = fetch(name, to, url=url, again=again, observe=line)
    state = "fetched" if found.new else "there already, unchanged since it was fetched"
    out.print(safe(f"{found.data_set.title}: {state}"), soft_wrap=True)
    out.print(safe(f"{found.folder}: {found.files} files, {count(found.size_bytes)}B; {found.data_set.licence}"))
    checked = {
        "all": "Every download had the checksum that is known for it.",
        "some": f"Checksums are known for some of its files; those of all are recorded in {RECORD}.",
        "none": f"No checksum is known: this fetch was trusted, and its checksums are recorded in {RECORD}.",
    }
    if found.new:
        out.print(safe(checked[found.data_set.checked], style="dim"), soft_wrap=True)
    if found.data_set.use:
        out.print(safe("In a job:", style="dim"))
        for text in found.data_set.use.replace("FOLDER", str(found.folder)).splitlines():
            out.print(safe(f"  {text}"), soft_wrap=True)


def data_list() -> None:
    """List the data sets that can be fetched."""
    from dialoom.cli.terminal import out, safe, table
    from dialoom.fetch import catalogue

    words = {"all": "known", "some": "some known", "none": "first fetch"}
    rows = table("data sets", "name", "what", "licence", "checksums", "publisher")
    for name, entry in catalogue().items():
        rows.add_row(
            name,
            safe(entry.title),
            safe(entry.licence),
            words[entry.checked],
            safe(entry.home.removeprefix("https://"), style="dim"),
        )
    out.print(rows)
    out.print(safe("dialoom data fetch NAME", style="dim"))


class _ProgressLine:
    """One live line on a terminal; elsewhere a line every ten seconds, and for all trouble. A context manager."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._line_s = time.monotonic()
        self._file = ""
        self._since_s, self._since_bytes = 0.0, 0

    def __enter__(self) -> _ProgressLine:
        from rich.live import Live

        from dialoom.cli.terminal import err

        if err.is_terminal:
            self._live = Live("", console=err, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        from dialoom.cli.terminal import LINE_S, err, safe

        now = time.monotonic()
        if progress.file != self._file or progress.done_bytes < self._since_bytes:
            self._file, self._since_s, self._since_bytes = progress.file, now, progress.done_bytes
        if self._live is None and now - self._line_s < LINE_S and not progress.trouble:
            return
        self._line_s = now
        rate = (progress.done_bytes - self._since_bytes) / max(now - self._since_s, 0.1)
        text = safe(_shown(progress, rate))
        if self._live is not None:
            self._live.update(text)
        else:
            err.print(text, soft_wrap=True)


def _shown(progress: Progress, bytes_per_s: float) -> str:
    from dialoom.cli.terminal import count

    of = f" ({progress.n} of {progress.files})" if progress.files > 1 else ""
    if progress.trouble or progress.phase != "downloading":
        return f"{progress.phase} {progress.file}{of}" + (f": {progress.trouble}" if progress.trouble else "")
    done = f"{count(progress.done_bytes)}B"
    if progress.total_bytes:
        done += f" of {count(progress.total_bytes)}B, {progress.done_bytes / progress.total_bytes:.0%}"
    return f"{progress.phase} {progress.file}{of}: {done}, {count(bytes_per_s)}B/s"
