"""What IC-DST counts and how."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Bools, Definition, Measured
from dialoom.metrics._input import NO_VALUE, ScoreInput
from dialoom.metrics._rewrite import rewrite
from dialoom.metrics.compat.multiwoz import DOMAINS, trade_slot
from dialoom.metrics.compat.trade import MEASURES, trade_scores
from dialoom.state import SlotRef


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Conventions only; equality with the code's numbers is not claimed, as its replacement lists for predicted values
    are not repeated here. Only dialogues whose goal lies within the five domains count. Gold "none" is dropped; "<" and
    ">" in values become "|"; gold "a|b" accepts either, a predicted "a|b" is cut to "a". "dontcare" is an ordinary
    value.

    Joint goal is equality of the two states. By domain: dialogues whose goal names it, all turns, both states cut to
    it; slot accuracy divides by 30 there too.
    """
    states = rewrite(data, trade_slot, _gold, lambda ref, value: _bars(value).partition("|")[0])
    return trade_scores(states, _within_domains(data), slots_of_domain=False)


def _bars(value: str) -> str:
    return value.replace("<", "|").replace(">", "|")


def _gold(ref: SlotRef, forms: tuple[str, ...]) -> tuple[str, ...]:
    if forms[0] == NO_VALUE:
        return ()
    return tuple(part for form in forms for part in _bars(form).split("|"))


def _within_domains(data: ScoreInput) -> Bools:
    """By dialogue: whether its goal, or gold where no goal is known, names nothing outside the five domains."""
    outside = np.array([s.lower() not in DOMAINS for s in data.services] or [False])
    kept: Bools = ~(data.dialogue_services & outside).any(axis=1)
    for i, goal in enumerate(data.goals or ()):
        if goal is not None:
            kept[i] = goal <= set(DOMAINS)
    return kept


PLUGIN = Definition(
    "icdst_convention",
    "joint goal under the counting conventions of IC-DST (equality is not claimed)",
    "Hu et al. 2022 (IC-DST) at c968321b699a, conventions only",
    MEASURES,
    compute,
    "multiwoz",
)
