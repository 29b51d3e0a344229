"""The systems a comparison is about: each method and cell of the runs, with its scores, cost, tokens and seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialoom.metric import Figure, Floats, Measured, mean_of, measured
from dialoom.scoring import Coverage, definitions_for
from dialoom.stats import Interval, Resampling, intervals

if TYPE_CHECKING:
    from dialoom.metric import Definition
    from dialoom.metrics._input import ScoreInput
    from dialoom.runtime.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Value:
    """One figure of a system. ``unit`` is ``fraction``, ``tokens``, ``seconds``, ``USD`` and so on."""

    value: float | None
    unit: str = "fraction"
    higher_is_better: bool | None = True
    meaning: str = ""
    interval: Interval | None = None


@dataclass(frozen=True)
class System:
    """One method and cell of a run. ``label`` is unique within the comparison."""

    label: str
    run: Path
    method: str
    cell: str
    coverage: Coverage
    settings: Mapping[str, Any]
    figures: Mapping[str, Value] = field(default_factory=dict)
    """By name: ``definition/measure``, and those of :data:`EFFICIENCY` that are known."""
    replayed: bool = False
    """Whether a call log answered some of its calls, which then took no time."""


EFFICIENCY: Mapping[str, tuple[str, str]] = {
    "cost_usd": ("USD", "attributed cost, US dollars per 1,000 dialogues"),
    "tokens": ("tokens", "tokens a turn, prompt and output, mean"),
    "prompt_tokens": ("tokens", "prompt tokens a turn, mean"),
    "output_tokens": ("tokens", "output tokens a turn, mean"),
    "calls": ("calls", "model calls a turn, mean"),
    "latency_s": ("seconds", "latency of a turn, mean"),
    "latency_p95_s": ("seconds", "latency of a turn, 95th percentile"),
    "engine_s": ("seconds", "seconds computed in the engine a turn, mean; replayed calls with their original ones"),
}
"""Names of what a system costs: unit and meaning. Less is better throughout."""


@dataclass(frozen=True)
class Scored:
    """A system with what paired tests and intervals need."""

    system: System
    data: ScoreInput
    measures: Mapping[str, tuple[Definition, Measured]]
    """By definition name: its headline, where it has a value and sums."""


def scored_systems(
    run: Path,
    asked: Sequence[str] | None,
    resampling: Resampling,
    *,
    several: bool,
    also: Collection[str] = (),
) -> list[Scored]:
    """Every method and cell of a run. Headlines, figures of cost and the measures named in ``also`` get intervals.

    ``several`` puts the run's name before labels. Raises what ``score_run`` raises.
    """
    from dialoom.metrics._traces import read_inputs, recorded
    from dialoom.runtime.folder import RunFolder

    record = recorded(run)
    spent = _spent(RunFolder(run))
    found = []
    for units, data, declares in read_inputs(run):
        name = f"{units.method}.{units.cell}" if units.cell else units.method
        total = sum(units.by_outcome.values())
        figures: dict[str, Value] = {}
        headlines = {}
        for definition in definitions_for(data, asked):
            measures = definition.score(data, declares)
            headline = measures[definition.headline.name]
            if headline.sums is not None and headline.overall.value is not None:
                headlines[definition.name] = (definition, headline)
            figures |= _figures(definition, measures, data, resampling, also)
        cost, replayed = spent.get((units.method, units.cell), (None, False))
        system = System(
            f"{run.name}/{name}" if several else name,
            run,
            units.method,
            units.cell,
            Coverage(len(units.scored), total, data.n_turns, units.by_outcome),
            settings_of(record, units.method, units.cell),
            figures | _efficiency(data, cost, resampling),
            replayed,
        )
        found.append(Scored(system, data, headlines))
    return found


def _figures(
    definition: Definition,
    measures: Mapping[str, Measured],
    data: ScoreInput,
    resampling: Resampling,
    also: Collection[str],
) -> dict[str, Value]:
    head = definition.headline.name
    wanted = {n: m for n, m in measures.items() if n == head or f"{definition.name}/{n}" in also}
    sure = intervals(wanted, data.clusters, resampling)
    return {
        f"{definition.name}/{m.name}": Value(
            measures[m.name].overall.value, m.unit, m.higher_is_better, m.meaning, sure.get(m.name)
        )
        for m in definition.measures
        if measures[m.name].overall.value is not None
    }


def _efficiency(data: ScoreInput, cost: Measured | None, resampling: Resampling) -> dict[str, Value]:
    """The figures of :data:`EFFICIENCY` over all user turns of the scored dialogues; cost over all dialogues.

    Where no call was answered there is none but ``calls``: its tokens and seconds would be the least of all systems.
    """
    found: dict[str, Measured] = {}
    log = data.log
    if log is not None:
        numbers = {**log.numbers, "tokens": log.numbers["prompt_tokens"] + log.numbers["output_tokens"]}
        answers = [np.nansum(numbers[n]) for n in ("tokens", "run_s")]
        unanswered = np.nansum(numbers["n_calls"]) > 0 and not any(answers)
        for name, column in (("calls", "n_calls"), ("engine_s", "run_s"), *((n, n) for n in _SAME)):
            kept = ~np.isnan(numbers[column])
            if kept.any() and (name == "calls" or not unanswered):
                found[name] = mean_of(numbers[column][kept], log.dialogue[kept], data.n_dialogues)
        seconds = log.numbers["latency_s"]
        seconds = seconds[~np.isnan(seconds) & (not unanswered)]
        if len(seconds):
            found["latency_p95_s"] = Measured(Figure(float(np.percentile(seconds, 95)), len(seconds)))
    sure = intervals(found, data.clusters, resampling)
    if cost is not None and cost.sums is not None:
        found["cost_usd"] = cost
        sure |= intervals({"cost_usd": cost}, np.arange(cost.sums.shape[1]), resampling)
    return {
        name: Value(found[name].overall.value, unit, False, meaning, sure.get(name))
        for name, (unit, meaning) in EFFICIENCY.items()
        if name in found and found[name].overall.value is not None
    }


_SAME = ("tokens", "prompt_tokens", "output_tokens", "latency_s")


def _spent(folder: RunFolder) -> dict[tuple[str, str], tuple[Measured | None, bool]]:
    """(method, cell) to the attributed dollars per 1,000 dialogues, and whether calls were replayed."""
    from dialoom.costs import attributed_sums, replayed_calls

    if not all((folder.traces / f"{table}.parquet").exists() for table in ("dialogues", "calls")):
        return {}
    replayed = replayed_calls(folder)
    found = {}
    for key, sums in attributed_sums(folder).items():
        cost = None if sums is None else _per_thousand(sums)
        found[key] = (cost, replayed.get(key, 0) > 0)
    return found


def _per_thousand(sums: Floats) -> Measured:
    usd, units = sums
    dialogues = np.arange(sums.shape[1])
    return measured([usd * 1000.0, units], dialogues, sums.shape[1])


def settings_of(record: Mapping[str, Any], method: str, cell: str) -> dict[str, Any]:
    """What decides a system's results, by dotted name: the identity of its cell, other methods left out."""
    from dialoom.runtime.plan import flat

    identity = dict(record.get("identity") or {})
    identity = dict((identity.get("cells") or {}).get(cell, identity))
    methods = identity.pop("methods", None) or record.get("methods") or {}
    prompts = dict(identity.pop("prompts", None) or {})
    mine = {k.removeprefix(f"{method}/"): v for k, v in prompts.items() if k.startswith(f"{method}/")}
    own = {"name": method, "cell": cell, **dict(methods.get(method) or {}), "prompts": mine}
    fields = (record.get("cells") or {}).get(cell) or {}
    engines = dict(item for field, value in fields.items() if _of_engines(field) for item in flat(value, field))
    return engines | dict(flat({**identity, "method": own, "versions": record.get("versions") or {}}))


def _of_engines(field: str) -> bool:
    """Whether a sweep field is one of engines; identities leave out some, such as an endpoint's URL."""
    return field.split(".")[0] == "engines"


def models_of(settings: Mapping[str, Any]) -> str:
    """The models that a system's roles use, joined; "" where its run does not say."""
    engines = [str(v) for n, v in settings.items() if n.startswith("method.roles.")]
    models = [settings.get(f"engines.{e}.model") for e in engines]
    return " + ".join(dict.fromkeys(str(m) for m in models if m))
