"""What FnCTOD counts and how."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Figure, Measure, Measured, f1, mean_of, measured_each, precision, recall
from dialoom.metrics._input import ScoreInput
from dialoom.metrics._rewrite import rewrite
from dialoom.metrics.compat.label_fix import SLOT_RULES, TYPO_MAP
from dialoom.metrics.compat.multiwoz import DOMAINS, trade_slot
from dialoom.metrics.compat.trade import cut, turn_values
from dialoom.schema import DONTCARE
from dialoom.state import SlotRef

_ABSENT = ("none", "not mentioned", "not present")
_DONTCARE = (DONTCARE, "dont care", "do not care")
_BY_NAME = {(slot.partition("-")[2], value): right for (slot, value), right in SLOT_RULES.items()}


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Conventions only; equality with the code's numbers is not claimed, as its token parsing and its list of name and
    time replacements are not repeated here. Pairs with "none", "not mentioned" or "not present" anywhere are dropped on
    both sides. The typo map (that of ``trade_label_fix``) applies to predictions only, the rules by slot, whatever the
    domain, to both sides. Pairs with "dontcare" are dropped from the *prediction* only, so that a gold "dontcare" makes
    its turn wrong.

    Joint accuracy over all turns and all domains; precision, recall and F1 over the pairs of the corpus. By domain: all
    turns of the dialogues whose gold names it, both states cut to it. ``mean_domain_accuracy``, the plain mean of those
    five, is own: the code contains no averaging step.
    """
    states = rewrite(data, trade_slot, _gold, _pred)
    rows, n = states.aligned, states.n_dialogues
    right = np.bincount(rows.turn[~rows.match], minlength=states.n_turns) == 0
    joint = mean_of(right, states.dialogue, n, states.turn_groups)
    domains = {}
    for domain in DOMAINS:
        inside = np.flatnonzero(states.of_goal(domain)[states.dialogue])
        if len(inside):
            values = turn_values(states, cut(states, domain), 30)["joint_goal_accuracy"][inside]
            domains[domain] = Figure(float(values.mean()), len(inside))
    means = [f.value for f in domains.values() if f.value is not None]
    stats = [rows.match, (rows.pred >= 0) & ~rows.match, (rows.gold >= 0) & ~rows.match]
    dialogue = states.dialogue[rows.turn]
    combines = {"slot_f1": f1, "slot_precision": precision, "slot_recall": recall}
    return {
        "joint_goal_accuracy": Measured(joint.overall, {"domain": domains, **joint.by}, joint.sums, joint.combine),
        "mean_domain_accuracy": Measured(Figure(sum(means) / len(means) if means else None, len(means))),
        **measured_each(stats, dialogue, n, combines),
    }


def _cleaned(ref: SlotRef, value: str) -> str | None:
    if any(word in f"{ref.service} {ref.slot} {value}" for word in _ABSENT):
        return None
    name, letters = ref.slot, ref.slot.removeprefix("book ")
    value = _BY_NAME.get((name, value), _BY_NAME.get((letters, value), value))
    if name == "parking" and value == "free":
        value = "yes"
    if value.startswith("the"):
        value = value[4:]
    return None if value in _ABSENT else value


def _gold(ref: SlotRef, forms: tuple[str, ...]) -> tuple[str, ...]:
    value = _cleaned(ref, forms[0])
    return () if value is None else (value,)


def _pred(ref: SlotRef, value: str) -> str | None:
    value = TYPO_MAP.get(value, value)
    if any(word in value for word in _DONTCARE):
        return None
    return _cleaned(ref, value)


PLUGIN = Definition(
    "fnctod_convention",
    "joint accuracy under the counting conventions of FnCTOD (equality is not claimed)",
    "Li et al. 2024 (FnCTOD) at 243fa2f6850d, conventions only",
    (
        Measure("joint_goal_accuracy", "share of turns with the whole state right"),
        Measure("mean_domain_accuracy", "mean over the five domains"),
        Measure("slot_f1", "F1 of filled slots over the corpus"),
        Measure("slot_precision", "share of predicted slots that are right"),
        Measure("slot_recall", "share of gold slots that are right"),
    ),
    compute,
    "multiwoz",
)
