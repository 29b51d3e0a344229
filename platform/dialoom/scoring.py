"""Scores of a run, or of predictions made elsewhere, under any set of metric definitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialoom import registry
from dialoom.errors import JobError
from dialoom.metric import Definition, Figure
from dialoom.outcome import Outcome
from dialoom.stats import Interval, Resampling, intervals
from dialoom.tabular import Column, Table

if TYPE_CHECKING:
    from dialoom.metrics._input import ScoreInput

MULTIWOZ_DOMAINS = frozenset({"hotel", "train", "restaurant", "attraction", "taxi", "hospital", "police", "bus"})

TRACKED_BREAKDOWNS = ("service", "domain", "services", "rule")
"""Kinds of breakdown that go into an experiment tracker; the others would be thousands of names."""


@dataclass(frozen=True)
class Score:
    """One measure: overall, with its interval, and by group (kind, then label)."""

    overall: Figure
    interval: Interval | None = None
    by: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    unit: str = "fraction"
    higher_is_better: bool | None = True
    meaning: str = ""


@dataclass(frozen=True)
class DefinitionScores:
    """All measures of one definition, the headline first."""

    name: str
    meaning: str
    source: str
    measures: Mapping[str, Score]

    @property
    def headline(self) -> tuple[str, Score]:
        """Name and score of the first measure."""
        return next(iter(self.measures.items()))


@dataclass(frozen=True)
class Coverage:
    """What the scores stand on. Unscored dialogues (infrastructure, limits, bad input, not predicted) are left out."""

    dialogues_scored: int
    dialogues_total: int
    turns_labelled: int
    by_outcome: Mapping[str, int]

    @property
    def share(self) -> float:
        """Scored over all dialogues; 0 of 0 is 0."""
        return self.dialogues_scored / self.dialogues_total if self.dialogues_total else 0.0


@dataclass(frozen=True)
class GroupScores:
    """Scores of one method in one sweep cell."""

    method: str
    cell: str
    coverage: Coverage
    definitions: Mapping[str, DefinitionScores]

    @property
    def label(self) -> str:
        """``method`` or ``method.cell``."""
        return f"{self.method}.{self.cell}" if self.cell else self.method

    def flat(self, *, breakdowns: Collection[str] = TRACKED_BREAKDOWNS) -> dict[str, float]:
        """Every figure that is not null: ``definition/measure``, for the named kinds of breakdown
        ``definition/measure/kind/label``, and ``coverage/...``. Interval ends are ``definition/measure/low`` and
        ``/high``, headlines only.
        """
        cover = self.coverage
        found: dict[str, float] = {
            "coverage/share": cover.share,
            "coverage/dialogues_scored": float(cover.dialogues_scored),
            "coverage/dialogues_total": float(cover.dialogues_total),
            "coverage/turns_labelled": float(cover.turns_labelled),
        }
        for definition in self.definitions.values():
            for i, (name, score) in enumerate(definition.measures.items()):
                found |= _flat_score(f"{definition.name}/{name}", score, ends=i == 0, breakdowns=breakdowns)
        return found


def _flat_score(name: str, score: Score, *, ends: bool, breakdowns: Collection[str]) -> dict[str, float]:
    if score.overall.value is None:
        return {}
    found = {name: score.overall.value}
    if ends and score.interval is not None:
        found |= {f"{name}/low": score.interval.low, f"{name}/high": score.interval.high}
    for kind, groups in score.by.items():
        if kind in breakdowns:
            found |= {f"{name}/{kind}/{label}": f.value for label, f in groups.items() if f.value is not None}
    return found


@dataclass(frozen=True)
class ScoreReport:
    """Scores of everything in a run, one group a method and cell."""

    groups: tuple[GroupScores, ...]
    notes: tuple[str, ...] = ()

    def flat(self, *, breakdowns: Collection[str] = TRACKED_BREAKDOWNS) -> dict[str, float]:
        """Every figure by a stable name; with several groups each name begins with its group's label and "/"."""
        if len(self.groups) == 1:
            return self.groups[0].flat(breakdowns=breakdowns)
        return {f"{g.label}/{k}": v for g in self.groups for k, v in g.flat(breakdowns=breakdowns).items()}

    def table(self) -> Table:
        """One row a headline, with interval and coverage; definitions that are null throughout are left out."""
        rows = []
        for group in self.groups:
            cover = group.coverage
            for definition in group.definitions.values():
                name, score = definition.headline
                if all(s.overall.value is None for s in definition.measures.values()):
                    continue
                low, high = (score.interval.low, score.interval.high) if score.interval else (None, None)
                covered = f"{cover.dialogues_scored} of {cover.dialogues_total}"
                rows.append(
                    (group.label, definition.name, name, score.overall.value, low, high, score.overall.n, covered)
                )
        columns = (
            Column("method"),
            Column("definition"),
            Column("measure"),
            Column("value", "number"),
            Column("low", "number"),
            Column("high", "number"),
            Column("n", "count"),
            Column("dialogues"),
        )
        return Table("Scores", columns, tuple(rows), self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``scores.json``; :meth:`from_dict` gives the report back."""
        return {
            "version": 1,
            "notes": list(self.notes),
            "groups": [
                {
                    "method": g.method,
                    "cell": g.cell,
                    "coverage": {
                        "share": g.coverage.share,
                        "dialogues_scored": g.coverage.dialogues_scored,
                        "dialogues_total": g.coverage.dialogues_total,
                        "turns_labelled": g.coverage.turns_labelled,
                        "by_outcome": dict(g.coverage.by_outcome),
                    },
                    "definitions": {name: _definition_record(d, g.coverage) for name, d in g.definitions.items()},
                }
                for g in self.groups
            ],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ScoreReport:
        """Inverse of :meth:`to_dict`."""
        groups = []
        for g in record["groups"]:
            cover = g["coverage"]
            coverage = Coverage(
                cover["dialogues_scored"], cover["dialogues_total"], cover["turns_labelled"], cover["by_outcome"]
            )
            definitions = {name: _definition_from(name, d) for name, d in g["definitions"].items()}
            groups.append(GroupScores(g["method"], g["cell"], coverage, definitions))
        return cls(tuple(groups), tuple(record.get("notes", ())))


def _definition_record(scores: DefinitionScores, coverage: Coverage) -> dict[str, Any]:
    name, headline = scores.headline
    return {
        "meaning": scores.meaning,
        "source": scores.source,
        "headline": {
            "measure": name,
            **_score_record(headline, with_by=False),
            "dialogues_scored": coverage.dialogues_scored,
            "dialogues_total": coverage.dialogues_total,
        },
        "measures": {name: _score_record(score) for name, score in scores.measures.items()},
    }


def _score_record(score: Score, *, with_by: bool = True) -> dict[str, Any]:
    interval = score.interval
    record: dict[str, Any] = {
        "value": score.overall.value,
        "n": score.overall.n,
        "interval": [interval.low, interval.high] if interval else None,
        "level": interval.level if interval else None,
        "unit": score.unit,
        "higher_is_better": score.higher_is_better,
        "meaning": score.meaning,
    }
    if with_by:
        record["by"] = {
            kind: {label: {"value": f.value, "n": f.n} for label, f in groups.items()}
            for kind, groups in score.by.items()
        }
    return record


def _definition_from(name: str, record: Mapping[str, Any]) -> DefinitionScores:
    measures = {}
    for measure, m in record["measures"].items():
        interval = Interval(m["interval"][0], m["interval"][1], m["level"]) if m["interval"] else None
        by = {k: {label: Figure(f["value"], f["n"]) for label, f in g.items()} for k, g in m["by"].items()}
        overall = Figure(m["value"], m["n"])
        measures[measure] = Score(overall, interval, by, m["unit"], m["higher_is_better"], m["meaning"])
    return DefinitionScores(name, record["meaning"], record["source"], measures)


def definition_names() -> list[str]:
    """Every definition that can be asked for by name."""
    return registry.names("metrics")


def definitions_for(data: ScoreInput, asked: Sequence[str] | None = None) -> list[Definition]:
    """The definitions asked for, in that order; without a wish, all that fit the data.

    Raises JobError for a name that is no definition.
    """
    if asked is not None:
        return [definition(name) for name in asked]
    kinds = {"any", "multiwoz" if is_multiwoz(data) else "frames" if not data.whole_state else "any"}
    return [d for d in map(definition, definition_names()) if d.data in kinds]


def definition(name: str) -> Definition:
    """The definition of that name. Raises JobError where there is none."""
    plugin = registry.find("metrics", name)
    if not isinstance(plugin, Definition):
        raise JobError(f"'{name}' is not a metric definition", hint="A definition is a dialoom.metric.Definition.")
    return plugin


def is_multiwoz(data: ScoreInput) -> bool:
    """Whether gold is the whole state over MultiWOZ's domains."""
    return data.whole_state and bool(data.services) and MULTIWOZ_DOMAINS.issuperset(data.services)


def score_input(
    data: ScoreInput,
    declares: frozenset[str],
    definitions: Sequence[str] | None = None,
    resampling: Resampling | None = Resampling(),  # noqa: B008 - frozen
) -> dict[str, DefinitionScores]:
    """Every definition's scores of one input; without ``resampling`` there are no intervals."""
    result = {}
    for definition in definitions_for(data, definitions):
        found = definition.score(data, declares)
        sure = intervals(found, data.clusters, resampling) if resampling else {}
        measures = {
            m.name: Score(
                found[m.name].overall, sure.get(m.name), found[m.name].by, m.unit, m.higher_is_better, m.meaning
            )
            for m in definition.measures
        }
        result[definition.name] = DefinitionScores(definition.name, definition.meaning, definition.source, measures)
    return result


def score_run(
    run_dir: Path,
    *,
    definitions: Sequence[str] | None = None,
    resampling: Resampling | None = Resampling(),  # noqa: B008 - frozen
) -> ScoreReport:
    """Scores of a run folder, from its traces and ``run.json`` alone, one group a method and cell.

    Raises StorageError where traces are missing or damaged, JobError for an unknown definition.
    """
    from dialoom.metrics._traces import read_inputs

    groups = []
    for units, data, declares in read_inputs(run_dir):
        total = sum(units.by_outcome.values())
        coverage = Coverage(len(units.scored), total, data.n_turns, units.by_outcome)
        scores = score_input(data, declares, definitions, resampling)
        groups.append(GroupScores(units.method, units.cell, coverage, scores))
    return ScoreReport(tuple(groups))


def score_predictions(
    predictions: Path,
    gold: Path | None = None,
    schema: Path | None = None,
    *,
    format: str | None = None,
    seen_services: Sequence[str] | None = None,
    definitions: Sequence[str] | None = None,
    partial: bool = False,
    resampling: Resampling | None = Resampling(),  # noqa: B008 - frozen
) -> ScoreReport:
    """Scores of predictions made elsewhere, in any known format (found by looking at the file unless named).

    ``seen_services`` are the services of the training split; ``partial`` lets dialogues end early. Gold dialogues that
    are not predicted count in the coverage. Raises DataError that says which dialogues and turns do not fit.
    """
    from dialoom.metrics._build import build
    from dialoom.predictions import Source, read_predictions

    found = read_predictions(Source(predictions, gold, schema, partial), format)
    seen = found.seen if seen_services is None else frozenset(seen_services)
    data = build(found.rows, found.schema, seen=seen, whole_state=found.whole_state, goals=found.goals)
    outcomes = {Outcome.ACCEPTED.value: data.n_dialogues}
    if found.missing:
        outcomes["not_predicted"] = len(found.missing)
    coverage = Coverage(data.n_dialogues, data.n_dialogues + len(found.missing), data.n_turns, outcomes)
    scores = score_input(data, found.declares, definitions, resampling)
    return ScoreReport((GroupScores(predictions.name, "", coverage, scores),), _notes(found.missing))


def _notes(missing: Sequence[str]) -> tuple[str, ...]:
    if not missing:
        return ()
    shown = ", ".join(missing[:5]) + (", .." if len(missing) > 5 else "")
    return (f"{len(missing)} gold dialogues are not predicted and not scored: {shown}",)
