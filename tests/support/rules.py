"""Rules for the scripted engine."""

from __future__ import annotations

import os

from dialoom.engine import Request


def echo(request: Request) -> str:
    """The last message, twice. Depends on the messages alone."""
    return request.messages[-1].content * 2


echo.addressed = False  # type: ignore[attr-defined]


def nasty(request: Request) -> str:
    """What a model may come up with: NUL, emoji, half a surrogate, terminal escapes."""
    return "\0 😀 \ud800 \x1b[2J " + request.messages[-1].content[-8:]


def broken(request: Request) -> str:
    """A rule with a bug."""
    raise ZeroDivisionError(f"broken on purpose: {len(request.messages)}")


def deadly(request: Request) -> str:
    """Ends the engine's process where the last message holds DEADLY; an echo else."""
    if "DEADLY" in request.messages[-1].content:
        os._exit(9)
    return echo(request)


deadly.addressed = False  # type: ignore[attr-defined]


def dice(request: Request) -> str:
    """Never the same answer twice, as no engine should but many do."""
    return os.urandom(8).hex()


dice.addressed = False  # type: ignore[attr-defined]
