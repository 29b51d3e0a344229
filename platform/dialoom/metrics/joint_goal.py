"""Exact joint goal accuracy over whole states."""

from __future__ import annotations

from dialoom.metric import Definition, Figure, Measure, Measured, mean_of
from dialoom.metrics._columns import distinct
from dialoom.metrics._input import ScoreInput


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Share of turns whose predicted state equals gold: the same slots filled, each value one of gold's accepted forms,
    character by character. No value is normalised, "dontcare" is an ordinary value, and turns where both states are
    empty count.

    Where gold annotates active services only (SGD), a service keeps its last annotated state. A breakdown by service
    restricts both states to the service, over all turns of the dialogues whose gold ever names it.
    """
    correct = data.exact_turns
    overall = mean_of(correct, data.dialogue, data.n_dialogues, data.turn_groups)
    by = {**overall.by, "service": _by_service(data)}
    return {"joint_goal_accuracy": Measured(overall.overall, by, overall.sums, overall.combine)}


def _by_service(data: ScoreInput) -> dict[str, Figure]:
    rows = data.aligned
    wrong_turn, wrong_service = rows.turn[~rows.match], data.slot_service[rows.slot[~rows.match]]
    figures = {}
    for i, service in enumerate(data.services):
        inside = data.dialogue_services[data.dialogue, i]
        n = int(inside.sum())
        if n:
            wrong = len(distinct(wrong_turn[(wrong_service == i) & inside[wrong_turn]]))
            figures[service] = Figure((n - wrong) / n, n)
    return figures


PLUGIN = Definition(
    "joint_goal",
    "exact joint goal accuracy: share of turns whose whole state is right",
    "Henderson et al. 2014 (DSTC2 joint goal); as ReacTOD reports MultiWOZ, values unnormalised",
    (Measure("joint_goal_accuracy", "share of turns with the whole state right"),),
    compute,
)
