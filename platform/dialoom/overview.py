"""The view of a sweep: a row a system, best first, with the settings that differ, scores, cost, tokens and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dialoom.errors import JobError
from dialoom.pareto import cost_axis, notes, panels, time_axis
from dialoom.scoring import definition, definition_names
from dialoom.systems import EFFICIENCY, System, Value, models_of
from dialoom.tabular import Cell, Column, Table
from dialoom.text import printable

SCORES = ("joint_goal", "sgd_average_service", "slot_f1", "delta")
"""Definitions with a column of their own, where they fit the data; the first leads."""
MOST_FIELDS = 4
ALIASES = {"cost": "cost_usd", "latency": "latency_s", "latency_p95": "latency_p95_s", "jga": "joint_goal"}
ALIASES |= {"avg_service": "sgd_average_service"}
_NOISE = ("prompts.", "versions.", "engines.", "method.prompts.", "method.roles.", "method.declares", "method.name")
_NOISE_FIELDS = frozenset({"method.cell", "method.use", "code", "schema"})


@dataclass(frozen=True)
class Overview:
    """Systems in the order of ``metric``, and the figures shown of each."""

    systems: tuple[System, ...]
    metric: str
    shown: tuple[str, ...]
    fields: Mapping[str, tuple[str | None, ...]]
    """Settings that differ: a short name, and its value in each system."""
    same: Mapping[str, tuple[str, ...]]
    """Label of a system to those left out because their settings are equal: a cell may change nothing for a method."""

    def table(self, most: int | None = None, *, fields: bool = True) -> Table:
        """The systems as rows, with at most so many figures, and the settings that differ unless ``fields`` is false.

        The metric sorted by stands with its interval; ``front`` says where a system is on the Pareto front of the
        leading score: by cost, by time, or both.
        """
        names = identities(self.systems, self.fields if fields else {})
        score = self.lead
        fronts = [
            ("time" if p.cost == time_axis(self.systems)[0] else "cost", set(p.front_labels()))
            for p in panels(self.systems, score)
        ]
        rows = []
        for i, system in enumerate(self.systems):
            on = [name for name, found in fronts if system.label in found]
            figures = (cell for name in self.shown[:most] for cell in self._cells(system, name))
            covered = f"{system.coverage.dialogues_scored:,}/{system.coverage.dialogues_total:,}"
            place = "both" if len(on) > 1 else "".join(on)
            rows.append((i + 1, *(values[i] for values in names.values()), *figures, place, covered))
        columns = (
            Column("#", "count"),
            *(Column(name) for name in names),
            *(c for name in self.shown[:most] for c in self._columns(name)),
            Column("front"),
            Column("scored"),
        )
        better = "lowest" if self._lower(self.metric) else "highest"
        units = "Tokens and seconds are means a turn; $/1,000 is attributed cost, US dollars per 1,000 dialogues."
        said = (f"Sorted by {self.metric}, {better} first. {units}", *notes(self.systems, score), *self._same_notes())
        return Table(f"{len(self.systems)} systems", columns, tuple(rows), said)

    @property
    def lead(self) -> str:
        """The score that the Pareto front is about: the metric sorted by where that is one, else the first shown."""
        scores = [n for n in (self.metric, *self.shown) if n not in EFFICIENCY]
        return scores[0] if scores else self.metric

    def records(self) -> list[dict[str, Any]]:
        """Plain data: every figure of every system, not only those shown."""
        return [
            {
                "system": s.label,
                "method": s.method,
                "cell": s.cell,
                "model": models_of(s.settings),
                "fields": {name: values[i] for name, values in self.fields.items()},
                "figures": {n: _record(v) for n, v in s.figures.items()},
                "dialogues_scored": s.coverage.dialogues_scored,
                "dialogues_total": s.coverage.dialogues_total,
            }
            for i, s in enumerate(self.systems)
        ]

    def _same_notes(self) -> tuple[str, ...]:
        return tuple(
            f"{label} stands for {len(others) + 1} cells of equal settings." for label, others in self.same.items()
        )

    def _lower(self, name: str) -> bool:
        return any(s.figures[name].higher_is_better is False for s in self.systems if name in s.figures)

    def _columns(self, name: str) -> tuple[Column, ...]:
        unit = next((s.figures[name].unit for s in self.systems if name in s.figures), "")
        kind = "share" if unit == "fraction" else "number"
        column = Column(_heading(name, unit), kind)
        return (column, Column("95 %", "number")) if name == self.metric and self._sure(name) else (column,)

    def _sure(self, name: str) -> bool:
        return any(s.figures[name].interval is not None for s in self.systems if name in s.figures)

    def _cells(self, system: System, name: str) -> tuple[Cell, ...]:
        found = system.figures.get(name, Value(None))
        if name != self.metric or not self._sure(name):
            return (found.value,)
        return found.value, None if found.interval is None else _span(found)


def overview(systems: Sequence[System], sort: str | None = None) -> Overview:
    """The systems sorted by a figure: costs and times upwards, scores downwards, unknown values last.

    ``sort`` is a definition (its headline), ``definition/measure``, a name of ``EFFICIENCY``, or the measure's own name
    where only one has it; the leading score by default. Raises JobError for a name that no system has a figure of.
    """
    scores = [n for d in SCORES if (n := _headline(systems, d))]
    if not scores:
        scores = list(dict.fromkeys(n for s in systems for n in s.figures if n not in EFFICIENCY))[:1]
    metric = figure_name(sort, systems) if sort else next(iter(scores), next(iter(EFFICIENCY)))
    costs = ["cost_usd"] if any("cost_usd" in s.figures for s in systems) else []
    costs += ["tokens", time_axis(systems)[0]]
    if cost_axis(systems)[0] not in costs:
        costs.append(cost_axis(systems)[0])
    shown = [metric, *scores[:1], *(c for c in costs if any(c in s.figures for s in systems)), *scores[1:]]
    kept, same = _distinct(systems)
    cheap = cost_axis(systems)[0]
    ordered = sorted(kept, key=lambda s: (_rank(s.figures.get(metric)), _rank(s.figures.get(cheap))))
    return Overview(tuple(ordered), metric, tuple(dict.fromkeys(shown)), differing_fields(ordered), same)


def _distinct(systems: Sequence[System]) -> tuple[list[System], dict[str, tuple[str, ...]]]:
    """The first of all systems of a run with equal settings and equal figures of score, and who it stands for."""
    groups: dict[str, list[System]] = {}
    for s in systems:
        used = tuple(f"engines.{v}." for n, v in s.settings.items() if n.startswith("method.roles."))
        other = ("method.cell", *(n for n in s.settings if n.startswith("engines.") and not n.startswith(used)))
        settings = {n: v for n, v in s.settings.items() if n not in other}
        scores = {n: v.value for n, v in s.figures.items() if n not in EFFICIENCY and not n.startswith("effort/")}
        told = repr((str(s.run), s.method, models_of(s.settings), sorted(settings.items()), sorted(scores.items())))
        groups.setdefault(told if s.cell and settings else s.label, []).append(s)
    same = {g[0].label: tuple(s.label for s in g[1:]) for g in groups.values() if len(g) > 1}
    return [g[0] for g in groups.values()], same


def figure_name(name: str, systems: Sequence[System]) -> str:
    """The full name of a figure. Raises JobError with the nearest where no system has it, or several go by it."""
    known = list(dict.fromkeys(n for s in systems for n in s.figures))
    wanted = ALIASES.get(name.lower(), name)
    if wanted in known:
        return wanted
    head = _headline(systems, wanted)
    if head:
        return head
    ends = [n for n in known if n.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise JobError(f"several metrics are called '{printable(name, 80)}'", hint=f"Name one: {', '.join(ends)}.")
    raise _unknown(name, known)


def check_metric(name: str, definitions: Sequence[str] = ()) -> None:
    """Raise JobError for a metric that no definition has, or none of ``definitions``; needs no scores."""
    of_each = [definition(d) for d in definitions or definition_names()]
    known = [*(f"{d.name}/{m.name}" for d in of_each for m in d.measures), *EFFICIENCY]
    wanted = ALIASES.get(name.lower(), name)
    if not any(wanted in (n, *n.split("/")) for n in known):
        raise _unknown(name, known)


def _unknown(name: str, known: Sequence[str]) -> JobError:
    """The error for a name that is none of the full names ``known``, with the nearest."""
    definitions = list(dict.fromkeys(n.partition("/")[0] for n in known))
    short = [*definitions, *dict.fromkeys(n.rpartition("/")[2] for n in known), *ALIASES]
    near = get_close_matches(ALIASES.get(name.lower(), name), [*short, *known], n=1, cutoff=0.6)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return JobError(f"no system has a metric '{printable(name, 80)}'", hint=f"{hint}Known: {', '.join(definitions)}.")


def _headline(systems: Sequence[System], definition: str) -> str:
    return next((n for s in systems for n in s.figures if n.startswith(f"{definition}/")), "")


def _rank(found: Value | None) -> float:
    if found is None or found.value is None:
        return math.inf
    return found.value if found.higher_is_better is False else -found.value


def differing_fields(systems: Sequence[System]) -> dict[str, tuple[str | None, ...]]:
    """Settings with more than one value among the systems that have them, by their shortest distinct names.

    Hashes, versions and prompts are left out: they follow from the rest, and ``settings_table`` has them.
    """
    trees = [_telling(s.settings) for s in systems]
    found = {}
    for name in dict.fromkeys(n for t in trees for n in t):
        values = tuple(None if t.get(name) is None else str(t[name]) for t in trees)
        if len(set(values) - {None} if any(name not in t for t in trees) else set(values)) > 1:
            found[name] = values
    last = [n.rpartition(".")[2] for n in found]
    return {(s if last.count(s) == 1 else n): v for s, (n, v) in zip(last, found.items(), strict=True)}


def _telling(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {n: v for n, v in settings.items() if not n.startswith(_NOISE) and n not in _NOISE_FIELDS}
    model = models_of(settings)
    return {"model": model, **kept} if model else kept


def identities(
    systems: Sequence[System], fields: Mapping[str, tuple[str | None, ...]]
) -> dict[str, tuple[str | None, ...]]:
    """What tells systems apart, as columns: run, method, cell, and the settings that differ.

    A cell that is named after its settings is left out where their columns say it; more than ``MOST_FIELDS`` settings
    share one column, which names those that differ from what most systems have.
    """
    found: dict[str, tuple[str | None, ...]] = {
        "run": tuple(s.run.name for s in systems),
        "method": tuple(s.method for s in systems),
        "cell": tuple(s.cell for s in systems),
    }
    found = {name: values for name, values in found.items() if len(set(values)) > 1}
    if len(fields) > MOST_FIELDS:
        return {**found, "differs in": tuple(_differs(fields, i) for i in range(len(systems)))}
    whole = [(s.run.name, s.method, *(v[i] for v in fields.values())) for i, s in enumerate(systems)]
    if all("=" in s.cell or not s.cell for s in systems) and len(set(whole)) == len(systems) and fields:
        found.pop("cell", None)
    return {**found, **fields}


def _differs(fields: Mapping[str, tuple[str | None, ...]], i: int) -> str:
    usual = {n: max(dict.fromkeys(values), key=values.count) for n, values in fields.items()}
    return ", ".join(f"{n}={v[i]}" for n, v in fields.items() if v[i] is not None and v[i] != usual[n])


def short_names(systems: Sequence[System]) -> tuple[str, ...]:
    """A short name of each system, distinct: its cell, or in words the settings it is named after."""
    fields = differing_fields(systems)
    parts = identities(systems, fields)
    named = [", ".join(_words(n, v[i]) for n, v in parts.items() if v[i]) for i in range(len(systems))]
    if "cell" in parts:
        kept = [parts[n] for n in ("run", "method", "cell") if n in parts]
        named = ["/".join(v[i] or "" for v in kept).strip("/") for i in range(len(systems))]
    distinct = len(set(named)) == len(systems) and all(named)
    return tuple(printable(n) for n in (named if distinct else [s.label for s in systems]))


def _words(name: str, value: str | None) -> str:
    if value in ("True", "False"):
        return name if value == "True" else f"no {name}"
    numeric = value is not None and value.replace(".", "", 1).isdigit()
    return f"{name} {value}" if numeric else str(value)


def _heading(name: str, unit: str) -> str:
    if name in EFFICIENCY:
        return "$/1,000" if name == "cost_usd" else name
    short, _, measure = name.partition("/")
    short = {v: k for k, v in ALIASES.items() if k == "avg_service"}.get(short, short)
    shown = short if measure in ("joint_goal_accuracy", "accuracy", "f1") else name
    return f"{shown} %" if unit == "fraction" else shown


def _span(found: Value) -> str:
    assert found.interval is not None
    scale, form = (100.0, ".2f") if found.unit == "fraction" else (1.0, ".4g")
    return f"{scale * found.interval.low:{form}}–{scale * found.interval.high:{form}}"


def _record(found: Value) -> dict[str, Any]:
    ends = found.interval
    interval = None if ends is None else [ends.low, ends.high]
    return {"value": found.value, "interval": interval, "unit": found.unit, "higher_is_better": found.higher_is_better}
