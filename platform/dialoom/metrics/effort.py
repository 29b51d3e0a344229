"""Calls, tokens and seconds a turn."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Figure, Measure, Measured, measured, ratio
from dialoom.metrics._input import ScoreInput

_TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Means and percentiles over every user turn of the scored dialogues, labelled or not. Percentiles interpolate
    linearly. Tokens of a turn are the sums over its calls, replayed calls with their original tokens; latency is the
    turn's own wall clock. The cached share is cached over prompt tokens of the corpus.
    """
    log = data.log
    if log is None:
        return {}
    result: dict[str, Measured] = {}
    for column, label, levels in (
        ("n_calls", "calls", (50, 99)),
        *((name, name, (99,)) for name in _TOKENS),
        ("latency_s", "latency_s", (50, 95, 99)),
    ):
        values = log.numbers[column]
        kept = ~np.isnan(values)
        dialogue = log.dialogue[kept]
        ones = np.ones(len(dialogue))
        if not len(dialogue):
            continue
        result[f"{label}_mean"] = measured([values[kept], ones], dialogue, data.n_dialogues)
        for level in levels:
            value = float(np.percentile(values[kept], level))
            result[f"{label}_p{level}"] = Measured(Figure(value, len(dialogue)))
    cached, prompt = (np.nan_to_num(log.numbers[c]) for c in ("cached_tokens", "prompt_tokens"))
    result["cached_share"] = measured([cached, prompt], log.dialogue, data.n_dialogues, ratio)
    return result


def _measure(name: str, unit: str) -> Measure:
    what, _, kind = name.rpartition("_")
    how = "mean" if kind == "mean" else f"{kind[1:]}th percentile"
    return Measure(name, f"{what.replace('_', ' ')} a turn, {how}", needs="", higher_is_better=False, unit=unit)


PLUGIN = Definition(
    "effort",
    "model calls, tokens and seconds a user turn",
    "ReacTOD (arXiv 2605.19077): calls P50 and P99, tokens mean and P99",
    (
        *(_measure(f"calls_{k}", "calls") for k in ("mean", "p50", "p99")),
        *(_measure(f"{t}_{k}", "tokens") for t in _TOKENS for k in ("mean", "p99")),
        *(_measure(f"latency_s_{k}", "seconds") for k in ("mean", "p50", "p95", "p99")),
        Measure("cached_share", "cached over prompt tokens", needs="", higher_is_better=True),
    ),
    compute,
)
