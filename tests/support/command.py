"""The command ``dialoom`` called in this process, as a person calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


Command = Callable[..., Done]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs ``dialoom WORDS...``."""
    from dialoom.cli.main import main

    def dialoom(*words: object) -> Done:
        monkeypatch.setattr("sys.argv", ["dialoom", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "300")
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return dialoom
