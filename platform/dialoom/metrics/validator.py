"""What the validator did: how often it fired, what that corrected, what it harmed, and the state without it."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Bools, Definition, Figure, Grouping, Ints, Measure, Measured, mean_of
from dialoom.metrics._columns import find_keys, last_of_each, spread, until_next
from dialoom.metrics._input import Rows, ScoreInput
from dialoom.metrics._log import Firings, TurnLog
from dialoom.outcome import Outcome


def compute(data: ScoreInput) -> dict[str, Measured]:
    """Over every user turn of the scored dialogues:

    * trigger rate: turns where any rule fired; by rule, turns where that rule fired, over all turns;
    * self-correction rate: of the turns where a rule fired, those that end as ``corrected``; also by rule;
    * fallback rate: turns that reached the bound and kept the state;
    * harmed rate: of the rejected proposals that name a slot and a value, on labelled turns, those whose value gold
      accepts at that turn; ``harm_lasting_rate``: those of them that the turn's final state does not have;
    * without the validator: each turn's first proposal upserted as it was, from the first turn on ("[DELETE]" removes),
      scored as ``joint_goal``; ``joint_goal_gain`` is the final states' joint goal less that.
    """
    log = data.log
    if log is None or not len(log.dialogue):
        return {}
    fired = np.bincount(log.firings.row, minlength=len(log.dialogue)) > 0
    corrected = _is(log, Outcome.CORRECTED)
    result = {
        "trigger_rate": _with_rules(log, mean_of(fired, log.dialogue, data.n_dialogues)),
        "self_correction_rate": _self_correction(data, log, fired, corrected),
        "fallback_rate": mean_of(_is(log, Outcome.FALLBACK), log.dialogue, data.n_dialogues),
        "fallbacks": Measured(Figure(float(_is(log, Outcome.FALLBACK).sum()), len(log.dialogue))),
        **_harm(data, log),
    }
    if len(log.proposal_row) and data.n_turns:
        result |= _without(data, log)
    return result


def _is(log: TurnLog, outcome: Outcome) -> Bools:
    code = log.outcomes.index(outcome.value) if outcome.value in log.outcomes else -1
    result: Bools = log.outcome == code
    return result


def _fired_turns(firings: Firings) -> tuple[Ints, Ints]:
    """Distinct (row, rule) pairs."""
    width = int(firings.rule.max()) + 1 if len(firings.rule) else 1
    keys = np.unique(firings.row * width + firings.rule)
    return keys // width, keys % width


def _with_rules(log: TurnLog, overall: Measured) -> Measured:
    _, rules = _fired_turns(log.firings)
    counts = np.bincount(rules, minlength=len(log.rules))
    n = len(log.dialogue)
    by = {rule: Figure(int(c) / n, n) for rule, c in zip(log.rules, counts, strict=True)}
    return Measured(overall.overall, {"rule": by}, overall.sums, overall.combine)


def _self_correction(data: ScoreInput, log: TurnLog, fired: Bools, corrected: Bools) -> Measured:
    at = np.flatnonzero(fired)
    overall = mean_of(corrected[at], log.dialogue[at], data.n_dialogues)
    rows, rules = _fired_turns(log.firings)
    grouping = {"rule": Grouping(log.rules, rules)}
    by = mean_of(corrected[rows], log.dialogue[rows], data.n_dialogues, grouping).by
    return Measured(overall.overall, by, overall.sums, overall.combine)


def _harm(data: ScoreInput, log: TurnLog) -> dict[str, Measured]:
    firings = log.firings
    named = np.flatnonzero((firings.slot >= 0) & (firings.label >= 0))
    width = max(len(data.slots), 1)
    keys = firings.label[named] * width + firings.slot[named]

    def holds(rows: Rows) -> Bools:
        at = find_keys(rows.turn * width + rows.slot, keys)
        value = np.where(at >= 0, np.append(rows.value, -1)[at], -1)
        return data.matches(value, firings.value[named])

    right = holds(data.gold)
    lasting = right & ~holds(data.pred)
    dialogue = log.dialogue[firings.row[named]]
    by = {"rule": Grouping(log.rules, firings.rule[named])}
    return {
        "harmed_rate": mean_of(right, dialogue, data.n_dialogues, by),
        "harm_lasting_rate": mean_of(lasting, dialogue, data.n_dialogues, by),
        "harmed": Measured(Figure(float(right.sum()), len(named))),
    }


def states_without_validator(data: ScoreInput, log: TurnLog) -> Rows:
    """The states that the first proposals alone would have built, at the labelled turns."""
    keep = last_of_each(log.proposal_row * max(len(data.slots), 1) + log.proposal_slot)
    row, slot, value = log.proposal_row[keep], log.proposal_slot[keep], log.proposal_value[keep]
    order = np.lexsort((row, slot, log.dialogue[row]))
    row, slot, value = row[order], slot[order], value[order]
    hold = until_next(row, slot, log.dialogue)
    hold[value == data.deleted] = 0
    turn = log.label[spread(row, hold)]
    slot, value = np.repeat(slot, hold), np.repeat(value, hold)
    inside = np.flatnonzero(turn >= 0)
    by_turn = inside[np.lexsort((slot[inside], turn[inside]))]
    return Rows(turn[by_turn], slot[by_turn], value[by_turn])


def _without(data: ScoreInput, log: TurnLog) -> dict[str, Measured]:
    other = data.with_pred(states_without_validator(data, log))
    gain = data.exact_turns.astype(np.float64) - other.exact_turns
    return {
        "joint_goal_without": mean_of(other.exact_turns, data.dialogue, data.n_dialogues, data.turn_groups),
        "joint_goal_gain": mean_of(gain, data.dialogue, data.n_dialogues, data.turn_groups),
    }


PLUGIN = Definition(
    "validator",
    "how often the validator fired, what it corrected and harmed, and the joint goal without it",
    "ReacTOD (arXiv 2605.19077), figures of its validator analysis",
    (
        Measure("trigger_rate", "share of turns where a rule fired", needs="", higher_is_better=None),
        Measure("self_correction_rate", "share of those turns that end corrected", needs=""),
        Measure("fallback_rate", "share of turns that reached the call bound", needs="", higher_is_better=False),
        Measure("fallbacks", "turns that reached the call bound", needs="", higher_is_better=False, unit="turns"),
        Measure("harmed_rate", "share of rejected values that gold accepts", higher_is_better=False),
        Measure(
            "harm_lasting_rate", "share of rejected values that gold has, the final state not", higher_is_better=False
        ),
        Measure("harmed", "rejected values that gold accepts", higher_is_better=False, unit="proposals"),
        Measure("joint_goal_without", "exact joint goal of the first proposals, taken as they were"),
        Measure("joint_goal_gain", "exact joint goal less the one without validator"),
    ),
    compute,
)
