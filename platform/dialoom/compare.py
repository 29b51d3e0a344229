"""Runs side by side: how they differ, how sure that is, which dialogues flipped, and what was set differently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialoom.errors import JobError
from dialoom.metric import Floats, value_of
from dialoom.stats import Interval, Paired, Resampling, by_cluster, holm, paired
from dialoom.systems import Scored, System, scored_systems
from dialoom.tabular import Cell, Column, Table

if TYPE_CHECKING:
    from dialoom.metrics._input import ScoreInput

MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Contrast:
    """A system's headline figure, and how it differs from the baseline on the dialogues both have.

    ``value`` is over all scored dialogues of the system; ``paired`` and ``p_adjusted`` (Holm, over all tests of the
    comparison) are ``None`` for the baseline itself, and where no test is possible.
    """

    system: str
    definition: str
    measure: str
    unit: str
    higher_is_better: bool | None
    value: float | None
    interval: Interval | None
    paired: Paired | None = None
    p_adjusted: float | None = None

    @property
    def mark(self) -> str:
        """Stars for an adjusted p-value below .05, .01, .001."""
        p = 1.0 if self.p_adjusted is None else self.p_adjusted
        return next((stars for level, stars in MARKS if p < level), "")


@dataclass(frozen=True)
class Flip:
    """A dialogue that is right throughout in one system and not in the other, under the first definition."""

    dialogue_id: str
    system: str
    baseline_value: float
    value: float


@dataclass(frozen=True)
class Comparison:
    """Everything ``dialoom compare`` says. The first system is the baseline."""

    systems: tuple[System, ...]
    contrasts: tuple[Contrast, ...]
    flips: tuple[Flip, ...]
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    """Settings that differ: dotted name, and its value in each system."""
    notes: tuple[str, ...] = field(default=())

    def table(self) -> Table:
        """One row a definition and system, with intervals, tests and marks."""
        covers = {s.label: f"{s.coverage.dialogues_scored} of {s.coverage.dialogues_total}" for s in self.systems}
        rows = [_contrast_row(c, covers[c.system]) for c in self.contrasts]
        columns = (
            Column("definition"),
            Column("system"),
            Column("value", "number"),
            Column("low", "number"),
            Column("high", "number"),
            Column("difference", "number"),
            Column("diff. low", "number"),
            Column("diff. high", "number"),
            Column("p (Holm)", "p_value"),
            Column("effect", "number"),
            Column("mark"),
            Column("pairs", "count"),
            Column("dialogues"),
        )
        return Table("Comparison", columns, tuple(rows), self.notes)

    def wide(self) -> Table:
        """For papers: one row a definition, one column a system, ``value [low, high]`` with marks."""
        columns = (Column("definition"), *(Column(s.label, "number") for s in self.systems))
        by_name: dict[str, dict[str, Contrast]] = {}
        for contrast in self.contrasts:
            by_name.setdefault(contrast.definition, {})[contrast.system] = contrast
        rows = [
            (name, *(_short(found[s.label]) if s.label in found else None for s in self.systems))
            for name, found in by_name.items()
        ]
        return Table("Comparison", columns, tuple(rows), self.notes)

    def flips_table(self) -> Table:
        """Dialogues that became right, or wrong, throughout."""
        rows = [(f.dialogue_id, f.system, f.baseline_value, f.value, _direction(f)) for f in self.flips]
        columns = (
            Column("dialogue"),
            Column("system"),
            Column("baseline", "number"),
            Column("value", "number"),
            Column("flip"),
        )
        return Table("Flipped dialogues", columns, tuple(rows))

    def flip_counts(self) -> Table:
        """By system: dialogues that became right throughout, and that no longer are."""
        ways = [(f.system, f.value > f.baseline_value) for f in self.flips]
        rows = [(s.label, ways.count((s.label, True)), ways.count((s.label, False))) for s in self.systems[1:]]
        flipped = [row for row in rows if row[1] or row[2]]
        columns = (Column("system"), Column("now right", "count"), Column("no longer right", "count"))
        note = f"{len(rows) - len(flipped)} systems flip none." if len(flipped) < len(rows) else ""
        return Table("Flipped dialogues", columns, tuple(flipped), (note,) if note else ())

    def settings_table(self) -> Table:
        """Settings that differ."""
        columns = (Column("setting"), *(Column(s.label) for s in self.systems))
        return Table("Settings that differ", columns, tuple((name, *values) for name, values in self.settings))

    def only(self, labels: Iterable[str], definitions: Iterable[str] | None = None) -> Comparison:
        """The same comparison with fewer systems and definitions shown, p-values corrected over the tests of these."""
        kept = set(labels)
        names = {c.definition for c in self.contrasts} if definitions is None else set(definitions)
        at = [i for i, s in enumerate(self.systems) if s.label in kept]
        return replace(
            self,
            systems=tuple(self.systems[i] for i in at),
            contrasts=tuple(_adjusted([c for c in self.contrasts if c.system in kept and c.definition in names])),
            flips=tuple(f for f in self.flips if f.system in kept),
            settings=tuple((name, tuple(values[i] for i in at)) for name, values in self.settings),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the three tables' rows by column name."""
        tables = {"scores": self.table(), "flips": self.flips_table(), "settings": self.settings_table()}
        named = {
            key: [dict(zip((c.name for c in t.columns), row, strict=True)) for row in t.rows]
            for key, t in tables.items()
        }
        return {"systems": [s.label for s in self.systems], **named, "notes": list(self.notes)}


def _contrast_row(c: Contrast, covered: str) -> tuple[Cell, ...]:
    low, high = (c.interval.low, c.interval.high) if c.interval else (None, None)
    pair = c.paired
    difference = None if pair is None else pair.difference
    ends = (pair.interval.low, pair.interval.high) if pair and pair.interval else (None, None)
    effect, n = (None, None) if pair is None else (pair.effect_size, pair.n)
    head = (f"{c.definition}/{c.measure}", c.system, c.value, low, high)
    return (*head, difference, *ends, c.p_adjusted, effect, c.mark, n, covered)


def _short(c: Contrast) -> str | None:
    if c.value is None:
        return None
    scale, digits = (100, 2) if c.unit == "fraction" else (1, 2)
    text = f"{scale * c.value:.{digits}f}"
    if c.interval is not None:
        text += f" [{scale * c.interval.low:.{digits}f}, {scale * c.interval.high:.{digits}f}]"
    return text + c.mark


def _direction(flip: Flip) -> str:
    return "now right" if flip.value > flip.baseline_value else "no longer right"


def compare_runs(
    runs: Sequence[Path],
    *,
    definitions: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),  # noqa: B008 - frozen
    also: Collection[str] = (),
    alone: bool = False,
) -> Comparison:
    """Compare all methods and cells of ``runs`` with the first of them, on the dialogues both have.

    Headlines of the definitions asked for, or of all that fit every system's data. Flips are judged by ``joint_goal``,
    or by the first definition asked for. Measures named in ``also`` get an interval too. Raises JobError where there
    are fewer than two systems, unless one may stand ``alone``, and what ``score_run`` raises.
    """
    several = len(runs) > 1
    scored = [s for run in runs for s in scored_systems(run, definitions, resampling, several=several, also=also)]
    if len(scored) < 2 - alone:
        raise JobError("nothing to compare", hint="Name two runs, or one run with several methods or cells.")
    twice = {s.system.label for s in scored if sum(o.system.label == s.system.label for o in scored) > 1}
    if twice:
        raise JobError(f"two systems are both called {sorted(twice)[0]}", hint="Name each run once.")
    names = [n for n in scored[0].measures if all(n in s.measures for s in scored)]
    contrasts = _adjusted([c for name in names for c in _contrasts(scored, name, resampling)])
    lead = "joint_goal" if "joint_goal" in names and not definitions else next(iter(names), None)
    flips = [] if lead is None else [f for s in scored[1:] for f in _flips(scored[0], s, lead)]
    return Comparison(
        tuple(s.system for s in scored), tuple(contrasts), tuple(flips), _differing(scored), _notes(scored, lead)
    )


def _contrasts(scored: Sequence[Scored], name: str, resampling: Resampling) -> list[Contrast]:
    baseline = scored[0]
    found = []
    for s in scored:
        definition, m = s.measures[name]
        interval = s.system.figures[f"{name}/{definition.headline.name}"].interval
        test = None if s is baseline else _test(baseline, s, name, resampling)
        head = definition.headline
        found.append(
            Contrast(
                s.system.label,
                name,
                head.name,
                head.unit,
                head.higher_is_better,
                m.overall.value,
                interval,
                test,
            )
        )
    return found


def _test(baseline: Scored, other: Scored, name: str, resampling: Resampling) -> Paired | None:
    first, second = _common(baseline, other, name)
    combine = other.measures[name][1].combine
    return None if combine is None else paired(first, second, combine, resampling)


def _common(one: Scored, other: Scored, name: str) -> tuple[Floats, Floats]:
    """Both systems' sums over the dialogue ids that both have, in one order, with the same rows."""
    ids = [_ids(s.data) for s in (one, other)]
    shared = sorted(ids[0].keys() & ids[1].keys())
    keys = sorted({k for s in (one, other) for k in s.measures[name][1].keys})
    found = []
    for s, positions in zip((one, other), ids, strict=True):
        at = np.array([positions[i] for i in shared], dtype=np.int64)
        found.append(_with_keys(by_cluster(_sums(s, name), s.data.clusters)[:, at], s.measures[name][1].keys, keys))
    return found[0], found[1]


def _sums(s: Scored, name: str) -> Floats:
    sums = s.measures[name][1].sums
    if sums is None:
        raise AssertionError("only figures with sums are compared")
    return sums


def _with_keys(sums: Floats, own: Sequence[str], keys: Sequence[str]) -> Floats:
    """``sums`` with its blocks spread over all ``keys``, zero for those it has not."""
    if not keys:
        return sums
    blocks = sums.reshape(-1, len(own), sums.shape[1])
    spread = np.zeros((len(blocks), len(keys), sums.shape[1]))
    spread[:, [keys.index(k) for k in own]] = blocks
    return spread.reshape(-1, sums.shape[1])


def _ids(data: ScoreInput) -> dict[str, int]:
    return dict(zip(data.dialogue_ids, data.clusters.tolist(), strict=True))


def _adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    tested = [c for c in contrasts if c.paired is not None]
    adjusted = iter(holm([c.paired.p_value for c in tested if c.paired]))
    return [c if c.paired is None else replace(c, p_adjusted=next(adjusted)) for c in contrasts]


def _flips(baseline: Scored, other: Scored, name: str) -> list[Flip]:
    ids = sorted(_ids(baseline.data).keys() & _ids(other.data).keys())
    combine = other.measures[name][1].combine
    first, second = _common(baseline, other, name)
    if combine is None or not first.shape[1]:
        return []
    flips = []
    for i, dialogue_id in enumerate(ids):
        before, after = value_of(combine, first[:, i]), value_of(combine, second[:, i])
        if before is not None and after is not None and (before == 1.0) != (after == 1.0):
            flips.append(Flip(dialogue_id, other.system.label, before, after))
    return flips


def _differing(scored: Sequence[Scored]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    names = sorted({name for s in scored for name in s.system.settings})
    rows = []
    for name in names:
        values = [s.system.settings.get(name, "(absent)") for s in scored]
        if any(v != values[0] for v in values):
            rows.append((name, tuple(str(v) for v in values)))
    return tuple(rows)


def _notes(scored: Sequence[Scored], lead: str | None) -> tuple[str, ...]:
    notes = [
        f"Baseline: {scored[0].system.label}. Differences are on the dialogues both have; intervals by bootstrap over "
        "dialogues, p by permutation of whole dialogues, Holm-corrected over all tests shown; effect: mean difference "
        "of a dialogue over its standard deviation. * p < .05, ** p < .01, *** p < .001."
    ]
    for s in scored:
        left_out = s.system.coverage.dialogues_total - s.system.coverage.dialogues_scored
        if left_out:
            notes.append(f"{s.system.label}: {left_out} dialogues are not scored and left out.")
    if lead is not None:
        notes.append(f"A dialogue flips where {lead} is 1 for one system and below 1 for the other.")
    return tuple(notes)
