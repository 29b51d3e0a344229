"""Places where a process can be made to die or to wait, for tests of recovery and ``dialoom bench recover``.

``DIALOOM_FAULTS="rename:0.01,answer:0.005"`` ends the process at the place ``rename`` in one of a hundred passes;
``rename.parts:1`` only where the file lies in ``parts``; ``rename:1:0.2`` waits 0.2 s there instead. With
``DIALOOM_FAULTS_ONCE`` set to a folder each place is met once by all processes together and leaves a file of its name
there. Without the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

Fault = tuple[float, float]
"""Share of passes, and seconds to wait; 0 seconds stand for the end of the process."""


def read_faults(words: str) -> dict[str, Fault]:
    """``name:share`` or ``name:share:seconds``, with commas between them. Raises ValueError."""
    found = {}
    for word in words.split(","):
        if word:
            name, share, *seconds = word.split(":")
            found[name] = float(share), float(seconds[0]) if seconds else 0.0
    return found


_faults = read_faults(os.environ.get("DIALOOM_FAULTS", ""))
_once = os.environ.get("DIALOOM_FAULTS_ONCE", "")
_random = random.Random(os.getpid())


def fault_point(name: str, detail: str = "") -> None:
    """Kill this process here, as ``kill -9`` would, or wait, with the share set for ``name`` or ``name.detail``."""
    if not _faults:
        return
    key = name if name in _faults else f"{name}.{detail}"
    share, seconds = _faults.get(key, (0.0, 0.0))
    if _random.random() >= share or not _first(key):
        return
    if seconds:
        time.sleep(seconds)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def _first(key: str) -> bool:
    """Whether this pass may be hit: always, or where no process was before it."""
    if not _once:
        return True
    try:
        Path(_once, key).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
