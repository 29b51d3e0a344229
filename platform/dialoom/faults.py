"""Places where a process can be made to die or to wait, for tests of recovery and ``dialoom bench recover``.

``DIALOOM_FAULTS="rename:0.01,answer:0.005"`` ends the process at the place ``rename`` in one of a hundred passes;
``rename.parts:1`` only where the file lies in ``parts``; ``rename:1:0.2`` waits 0.2 s there instead. Without the
variable a place costs one comparison.
"""

from __future__ import annotations

import os
import random
import signal
import time

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
_random = random.Random(os.getpid())


def fault_point(name: str, detail: str = "") -> None:
    """Kill this process here, as ``kill -9`` would, or wait, with the share set for ``name`` or ``name.detail``."""
    if not _faults:
        return
    share, seconds = _faults.get(name) or _faults.get(f"{name}.{detail}") or (0.0, 0.0)
    if _random.random() >= share:
        return
    if seconds:
        time.sleep(seconds)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
