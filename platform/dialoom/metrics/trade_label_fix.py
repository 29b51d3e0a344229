"""Joint goal as TRADE reports it: 30 slots, label fix on gold."""

from __future__ import annotations

from dialoom.metric import Definition, Measured
from dialoom.metrics._input import NO_VALUE, ScoreInput
from dialoom.metrics._rewrite import rewrite
from dialoom.metrics.compat.label_fix import fix_label
from dialoom.metrics.compat.multiwoz import trade_slot
from dialoom.metrics.compat.trade import MEASURES, trade_scores


def compute(data: ScoreInput) -> dict[str, Measured]:
    """As ``trade``, with gold corrected by the label fix first: TRADE always applies it, T5DST only with its
    ``--fix_label`` flag. It applies to gold of every split and never to predictions. A gold value that the fix turns
    into "none" stays a pair, so that such a turn cannot be right.
    """
    states = rewrite(
        data,
        trade_slot,
        lambda ref, forms: (fix_label(ref, forms[0]),),
        lambda ref, value: None if value == NO_VALUE else value,
    )
    return trade_scores(states)


PLUGIN = Definition(
    "trade_label_fix",
    "joint goal as TRADE reports it: 30 slots, label fix on gold",
    "Wu et al. 2019 (TRADE) at b77fcf110af4; Lin et al. 2021 (T5DST) at 5781d2fe0872",
    MEASURES,
    compute,
    "multiwoz",
)
