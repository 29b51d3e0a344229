"""Results that papers report, to stand beside one's own where data set and definition match. They were not run by us.

The facts are in ``reported.yaml``, dated, each with its source; a file of one's own adds to them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import orjson
import yaml
from pydantic import BaseModel, Field, ValidationInfo, field_validator

from dialoom.job import parse_part
from dialoom.systems import System, Value, models_of
from dialoom.tabular import Cell, Column, Table
from dialoom.text import printable
from dialoom.yaml_file import read_yaml

PACKAGED = Path(__file__).with_name("reported.yaml")
DIGEST_BYTES = 4


class DataSet(BaseModel, extra="forbid", frozen=True):
    """One split of a data set, and how a run's data is known to be of it: every rule that is given must hold."""

    title: str
    dialogues: int = Field(ge=1)
    """How many the split has; a run of more is not of it."""
    reader: str = ""
    """The reader that the job used."""
    services: frozenset[str] = frozenset()
    """Exactly the services of the run's schema."""
    gold: str = ""
    """Base64 of the split's gold digests (:func:`gold_digests`), one after the other: all of a run's must be in it."""

    @field_validator("gold")
    @classmethod
    def _decodes(cls, value: str) -> str:
        raw = base64.b64decode("".join(value.split()), validate=True)
        if len(raw) % DIGEST_BYTES:
            raise ValueError(f"its length is no multiple of {DIGEST_BYTES} bytes")
        return value

    def digests(self) -> frozenset[bytes]:
        """The gold digests of the split's dialogues."""
        raw = base64.b64decode(self.gold)
        return frozenset(raw[i : i + DIGEST_BYTES] for i in range(0, len(raw), DIGEST_BYTES))


class Result(BaseModel, extra="forbid", frozen=True):
    """One reported figure. ``sure`` says how well its definition is known to be the one named."""

    data: str
    method: str
    model: str = ""
    figure: str = Field(pattern=r"^[^/\s]+/[^/\s]+$")
    """``definition/measure``, as in docs/metrics.md."""
    value: float = Field(allow_inf_nan=False)
    """A fraction for accuracies and rates."""
    source: str
    sure: Literal["stated", "inferred", "unconfirmed"] = "unconfirmed"
    note: str = ""


class Reported(BaseModel, extra="forbid", frozen=True):
    """A file of reported results."""

    as_of: date
    data_sets: dict[str, DataSet] = {}
    results: tuple[Result, ...] = ()

    @field_validator("results")
    @classmethod
    def _named(cls, value: tuple[Result, ...], info: ValidationInfo) -> tuple[Result, ...]:
        known = {*info.data.get("data_sets", {}), *(_packaged_names() if info.context != "packaged" else ())}
        for result in value:
            if result.data not in known:
                raise ValueError(f"data set '{printable(result.data, 60)}' is not among {', '.join(sorted(known))}")
        return value


@cache
def packaged() -> Reported:
    """The results that come along."""
    record = yaml.safe_load(PACKAGED.read_text(encoding="utf-8"))
    return Reported.model_validate(record, context="packaged")


def _packaged_names() -> tuple[str, ...]:
    return tuple(packaged().data_sets)


def load_reported(files: Sequence[Path] = ()) -> Reported:
    """The results that come along, and those of ``files``. Raises JobError with file, line and field."""
    data_sets, results, newest = dict(packaged().data_sets), list(packaged().results), packaged().as_of
    for path in files:
        file = read_yaml(path)
        own = parse_part(Reported, file.data, file, ())
        data_sets |= own.data_sets
        results += own.results
        newest = max(newest, own.as_of)
    return Reported.model_construct(as_of=newest, data_sets=data_sets, results=tuple(results))


@dataclass(frozen=True)
class Beside:
    """Reported results of one data set with the systems whose data it is; ``figures`` are what both have."""

    data_set: DataSet
    as_of: date
    figures: tuple[str, ...]
    results: tuple[Result, ...]
    systems: tuple[System, ...]

    def table(self) -> Table:
        """Reported rows and own ones together, best first by the first figure."""
        rows = [*self._reported(), *((s.label, *self._own(s)) for s in self.systems)]
        rows.sort(key=lambda r: (r[3] is None, -float(r[3] or 0.0)))
        units = {n: v.unit for s in self.systems for n, v in s.figures.items()}
        columns = (
            Column("system"),
            Column("model"),
            Column("from"),
            *(Column(_short(n), "share" if units[n] == "fraction" else "number") for n in self.figures),
        )
        return Table(f"Reported on {self.data_set.title}, beside these runs", columns, tuple(rows), self._notes())

    def records(self) -> dict[str, Any]:
        """Plain data: the reported results."""
        return {"data_set": self.data_set.title, "results": [r.model_dump() for r in self.results]}

    def _reported(self) -> list[tuple[Cell, ...]]:
        by_system: dict[tuple[str, str, str], dict[str, float]] = {}
        for r in self.results:
            by_system.setdefault((r.method, r.model, r.source), {})[r.figure] = r.value
        return [
            (
                printable(method),
                printable(model) or "not stated",
                f"reported: {printable(source)}",
                *(values.get(n) for n in self.figures),
            )
            for (method, model, source), values in by_system.items()
        ]

    def _own(self, system: System) -> tuple[Cell, ...]:
        covered = f"run here, {system.coverage.dialogues_scored:,} of {self.data_set.dialogues:,} dialogues"
        values = (system.figures.get(n, Value(None)).value for n in self.figures)
        return (models_of(system.settings) or None, covered, *values)

    def _notes(self) -> tuple[str, ...]:
        found = [f"Reported results are those of the papers, as of {self.as_of}; they were not run by us."]
        if any(s.coverage.dialogues_scored < self.data_set.dialogues for s in self.systems):
            found.append("Reported results are over the whole split; the runs here are over part of it.")
        unsure = sorted({r.figure.partition("/")[0] for r in self.results if r.sure == "unconfirmed"})
        if unsure:
            found.append(f"That the papers' definition is exactly ours is unconfirmed for {', '.join(unsure)}.")
        found += dict.fromkeys(f"{r.method}, {r.model or 'model not stated'}: {r.note}" for r in self.results if r.note)
        return tuple(found)


def _short(figure: str) -> str:
    definition, _, measure = figure.partition("/")
    return definition if measure == "joint_goal_accuracy" else figure


def beside(systems: Sequence[System], known: Reported) -> tuple[Beside, ...]:
    """For each data set that systems ran on: the results reported for it whose figure one of them has too."""
    runs = {run: _data_set(run, known) for run in dict.fromkeys(s.run for s in systems)}
    found = []
    for name in dict.fromkeys(n for n in runs.values() if n):
        own = tuple(s for s in systems if runs[s.run] == name)
        results = [r for r in known.results if r.data == name and any(_has(s, r.figure) for s in own)]
        figures = tuple(dict.fromkeys(r.figure for r in results))
        if results:
            found.append(Beside(known.data_sets[name], known.as_of, figures, tuple(results), own))
    return tuple(found)


def _has(system: System, figure: str) -> bool:
    return figure in system.figures and system.figures[figure].value is not None


def _data_set(run: Path, known: Reported) -> str:
    """The name of the data set whose rules the run's data fits; "" for none."""
    from dialoom.metrics._traces import recorded, trace_files

    services = frozenset(str(s.get("service_name")) for s in recorded(run).get("schema") or ())
    reader = _reader(run)
    fitting = [
        (name, d)
        for name, d in known.data_sets.items()
        if (not d.reader or d.reader == reader) and (not d.services or d.services == services)
    ]
    if not fitting:
        return ""
    import pyarrow.parquet as pq

    ids: set[str] = set()
    for file in trace_files(run, "dialogues"):
        ids.update(pq.read_table(file, columns=["dialogue_id"], partitioning=None).column(0).unique().to_pylist())
    fitting = [(name, d) for name, d in fitting if len(ids) <= d.dialogues]
    digests = gold_digests(run) if any(d.gold for _, d in fitting) else frozenset()
    return next((n for n, d in fitting if not d.gold or (digests and digests <= d.digests())), "")


def _reader(run: Path) -> str:
    """The reader of the run's job; "" where its record is not there."""
    path = run / "job.yaml"
    job = yaml.safe_load(path.read_bytes()) if path.exists() else None
    data = job.get("data") if isinstance(job, dict) else None
    return str(data.get("reader", "")) if isinstance(data, dict) else ""


def gold_digests(run: Path) -> frozenset[bytes]:
    """A digest of four bytes for each labelled dialogue of a run: of its id and its gold slot values, turn by turn."""
    import polars as pl

    from dialoom.metrics._traces import read_table

    key = ["dialogue_id", "turn"]
    frame = pl.from_arrow(read_table(run, "turns", [*key, "gold"]).combine_chunks())
    assert isinstance(frame, pl.DataFrame)
    turns: dict[str, dict[int, Any]] = {}
    for row in frame.drop_nulls("gold").unique(subset=key, keep="first").select(*key, "gold").iter_rows(named=True):
        turns.setdefault(row["dialogue_id"], {})[row["turn"]] = row["gold"]
    return frozenset(_digest(dialogue_id, gold) for dialogue_id, gold in turns.items())


def _digest(dialogue_id: str, turns: dict[int, Any]) -> bytes:
    states = [
        sorted([f["service"], v["slot"], v["values"]] for f in turns[i] for v in f["slot_values"])
        for i in sorted(turns)
    ]
    return hashlib.blake2b(orjson.dumps([dialogue_id, states]), digest_size=DIGEST_BYTES).digest()
