"""Dialogues that may be what kills their worker: kept apart, and run in ever smaller company until one is guilty.

A lease that was held in two losses of a worker is suspect. Suspects run last, eight to a worker and nothing beside
them; those that meet a third loss run alone; one that loses its worker alone is guilty and becomes an error row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dialoom.errors import DialoomError
from dialoom.outcome import Outcome
from dialoom.runtime.worker import Lease

SUSPECT_LOSSES = 2
COMPANY = 8


class Suspects:
    """Leases in quarantine."""

    def __init__(self) -> None:
        self._waiting: list[Lease] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def sort(self, leases: Sequence[Lease], why: str) -> tuple[list[Lease], list[Lease]]:
        """The leases of a lost worker, with that loss counted: (those free to run again, those to be closed as guilty).

        The rest goes into quarantine.
        """
        free: list[Lease] = []
        guilty: list[Lease] = []
        for lease in leases:
            counted = replace(lease, losses=lease.losses + 1)
            if counted.losses < SUSPECT_LOSSES or lease.close is not None:
                free.append(counted)
            elif len(leases) == 1 and counted.losses > SUSPECT_LOSSES + 1:
                guilty.append(replace(counted, close=Outcome.INFRASTRUCTURE, reason=_poison(counted, why)))
            else:
                self._waiting.append(counted)
        return free, guilty

    def take(self) -> list[Lease]:
        """The next company to run with nothing beside it; empty where none waits."""
        alone = [lease for lease in self._waiting if lease.losses > SUSPECT_LOSSES]
        company = alone[:1] or self._waiting[:COMPANY]
        self._waiting = [lease for lease in self._waiting if not any(lease is c for c in company)]
        return company

    def remaining(self) -> list[Lease]:
        """All that wait; none is left after that."""
        waiting, self._waiting = self._waiting, []
        return waiting


def _poison(lease: Lease, why: str) -> DialoomError:
    error = DialoomError(
        f"this dialogue ended its worker {lease.losses} times, at last with nothing beside it ({why})",
        hint="Look at its text and at the method; a rerun tries it again.",
    )
    error.__dict__["kind"] = "poison"
    return error
