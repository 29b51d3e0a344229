"""The unit of work: one dialogue through one method in one cell of a sweep, one trial."""

from __future__ import annotations

from typing import NamedTuple


class UnitKey(NamedTuple):
    """Keys every lease, row, part and trace.

    ``method`` is the method's name in the job, ``cell`` the sweep cell ("" without a sweep), ``trial`` counts repeats
    from 0.
    """

    dialogue_id: str
    method: str
    cell: str = ""
    trial: int = 0

    def __str__(self) -> str:
        cell = f"[{self.cell}]" if self.cell else ""
        trial = f"#{self.trial}" if self.trial else ""
        return f"{self.dialogue_id}:{self.method}{cell}{trial}"
