"""What the traces say of every turn besides states: calls, tokens, seconds, outcomes, validator rules, proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dialoom.metric import Floats, Ints


@dataclass(frozen=True, eq=False)
class Firings:
    """Every validator rule that rejected a proposal. ``label`` is the index into the labelled turns, -1 for none.

    ``slot`` and ``value`` are ids of the score input, -1 where the rule names none, or none that occurs elsewhere.
    """

    row: Ints
    rule: Ints
    label: Ints
    slot: Ints
    value: Ints


@dataclass(frozen=True, eq=False)
class TurnLog:
    """All user turns of the scored dialogues, labelled or not; the arrays have one entry a turn.

    ``numbers`` holds ``n_calls``, the token counts, ``latency_s`` and so on (``nan``: not recorded).
    ``proposal_row``, ``proposal_slot``, ``proposal_value`` are the first proposals, by row of this log.
    """

    dialogue: Ints
    outcome: Ints
    outcomes: Sequence[str]
    label: Ints
    """Index into the labelled turns of the score input, -1 for an unlabelled turn."""
    numbers: Mapping[str, Floats]
    rules: Sequence[str]
    firings: Firings
    proposal_row: Ints
    proposal_slot: Ints
    proposal_value: Ints
