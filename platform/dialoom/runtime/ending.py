"""How a run may end."""

from __future__ import annotations

from enum import StrEnum

from dialoom.outcome import Outcome


class Ending(StrEnum):
    """How a run ended; the exit status of ``dialoom run`` follows from it."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    ENGINE = "engine"
    STORAGE = "storage"
    WORKERS = "workers"
    INPUT = "input"
    LIMIT = "limit"
    STALLED = "stalled"

    @property
    def outcome(self) -> Outcome:
        """Outcome of the units that were read and not finished when the run ended so."""
        return Outcome.JOB_LIMIT if self in (Ending.LIMIT, Ending.STALLED) else Outcome.INTERRUPTED
