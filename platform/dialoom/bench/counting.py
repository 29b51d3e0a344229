"""A scripted rule that notes every call it answers in the file ``$DIALOOM_BENCH_COUNT``: what was really paid for."""

from __future__ import annotations

import hashlib
import os
from functools import cache

from dialoom.engine import Request
from dialoom.methods.tracker._rule import answer as tracker_answer


@cache
def _file() -> int:
    return os.open(os.environ["DIALOOM_BENCH_COUNT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def answer(request: Request) -> str:
    """As the tracker's rule answers; one line of the file names the call by its messages."""
    name = hashlib.blake2b(repr(request.messages).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
    os.write(_file(), name.encode() + b"\n")
    return tracker_answer(request)


answer.addressed = False  # type: ignore[attr-defined]
