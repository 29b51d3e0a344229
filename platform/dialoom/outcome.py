"""How a turn or a unit ended: one vocabulary for every method.

| outcome | scored | owed on a rerun |
|---|---|---|
| accepted, corrected | yes | no |
| fallback, not_parsable, prompt_too_long, unit_limit | yes, as the state it left | no |
| infrastructure, job_limit, interrupted | no, the whole dialogue is left out and counted | yes |
| bad_input | no, counted | when the input changes |
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Outcome(StrEnum):
    """How a turn or a unit ended, best first; a unit takes the worst outcome of its turns."""

    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    FALLBACK = "fallback"
    NOT_PARSABLE = "not_parsable"
    PROMPT_TOO_LONG = "prompt_too_long"
    UNIT_LIMIT = "unit_limit"
    INFRASTRUCTURE = "infrastructure"
    JOB_LIMIT = "job_limit"
    INTERRUPTED = "interrupted"
    BAD_INPUT = "bad_input"

    @property
    def scored(self) -> bool:
        """Whether a unit with this outcome takes part in scores."""
        return _ORDER[self] < _ORDER[Outcome.INFRASTRUCTURE]

    @property
    def owed(self) -> bool:
        """Whether a rerun of the same job must do the unit again."""
        return self in _OWED


_ORDER = {outcome: i for i, outcome in enumerate(Outcome)}
_OWED = frozenset({Outcome.INFRASTRUCTURE, Outcome.JOB_LIMIT, Outcome.INTERRUPTED})


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of ``outcomes``; ``accepted`` for none."""
    return max(outcomes, key=_ORDER.__getitem__, default=Outcome.ACCEPTED)
