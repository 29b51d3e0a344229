"""Joint goal as T5DST reports it by default: 30 slots, no label fix."""

from __future__ import annotations

from dialoom.metric import Definition, Measured
from dialoom.metrics._input import NO_VALUE, ScoreInput
from dialoom.metrics._rewrite import rewrite
from dialoom.metrics.compat.multiwoz import trade_slot
from dialoom.metrics.compat.trade import MEASURES, trade_scores


def compute(data: ScoreInput) -> dict[str, Measured]:
    """A turn is right if the sets of ``domain-slot-value`` are equal. Predicted "none" is dropped, but gold "none" is
    not: a turn with one can never be right. "dontcare" is an ordinary value on both sides. Gold is not cut to the 30
    slots. A gold value is its first form, under TRADE's slot names; TRADE's own text cleaning of the raw data is not
    repeated.

    By domain (zero-shot convention): dialogues whose goal names the domain, all their turns, also those before the
    domain comes up; both states cut to it. No average over domains exists in the code. Slot accuracy: (T - m - w) / T
    as in ``slot_accuracy``, T the evaluated slots. Turn F1: 1 where both are empty.
    """
    states = rewrite(
        data,
        trade_slot,
        lambda ref, forms: forms[:1],
        lambda ref, value: None if value == NO_VALUE else value,
    )
    return trade_scores(states)


PLUGIN = Definition(
    "trade",
    "joint goal as T5DST reports it by default: 30 slots, no label fix",
    "Wu et al. 2019 (TRADE) at b77fcf110af4; Lin et al. 2021 (T5DST) at 5781d2fe0872",
    MEASURES,
    compute,
    "multiwoz",
)
