"""Places where a process can be made to die, for tests of recovery and ``dialoom bench recover``.

``DIALOOM_FAULTS="rename:0.01,log:0.005"`` ends the process at the place ``rename`` in one of a hundred passes. Without
the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import random
import signal


def _read() -> dict[str, float]:
    pairs = (word.partition(":") for word in os.environ.get("DIALOOM_FAULTS", "").split(",") if word)
    return {name: float(share) for name, _, share in pairs}


_shares = _read()
_random = random.Random(os.getpid())


def fault_point(name: str) -> None:
    """Kill this process here, as ``kill -9`` would, with the probability set for ``name``."""
    if _shares and _random.random() < _shares.get(name, 0.0):
        os.kill(os.getpid(), signal.SIGKILL)
