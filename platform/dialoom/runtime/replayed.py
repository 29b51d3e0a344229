"""A job whose engines stand for those of a recorded run: what ``dialoom run --replay`` plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialoom.engines.replay import recorded_engines
from dialoom.errors import JobError
from dialoom.job import EngineEntry, Job, SweepConfig
from dialoom.registry import did_you_mean
from dialoom.runtime.plan import placed
from dialoom.runtime.sweep import applied, cells_of
from dialoom.yaml_file import YamlFile

Recorded = Mapping[str, Mapping[str, Any]]
"""Cell ("" for a run without a sweep) to the identities of its engines, by name."""


def replayed(job: Job, file: YamlFile, run: str) -> Job:
    """The job with every engine one that replays a recorded one; each cell of a sweep names its own.

    An engine stands for that of the same name in the cell of the same name; where the run has no such cell, for the
    engine of that name which all of its cells share. Raises JobError, naming the field, where that does not tell.
    """
    place = run if "://" in run else str(Path(run).absolute())
    known = recorded_engines(place)
    if job.sweep is None:
        engines = {name: _entry(place, known, name, "", {}, file) for name in job.engines}
        return job.model_copy(update={"engines": {n: EngineEntry(**e) for n, e in engines.items()}})
    cells = []
    for cell, fields in cells_of(job.sweep, file):
        with placed(file, "sweep"):
            names = applied(fields, file)[0].engines
        kept = {f: v for f, v in fields.items() if f.split(".")[0] != "engines"}
        cells.append({"name": cell, **kept, "engines": {n: _entry(place, known, n, cell, fields, file) for n in names}})
    base = {n: EngineEntry(use="replay", run=place) for n in job.engines}  # every cell has its own instead
    return job.model_copy(update={"engines": base, "sweep": SweepConfig(cells=tuple(cells))})


def _entry(
    run: str, known: Recorded, engine: str, cell: str, fields: Mapping[str, Any], file: YamlFile
) -> dict[str, Any]:
    """The replay engine for ``engine`` of ``cell``, whose sweep fields are ``fields``."""
    entry = {"use": "replay", "run": run, "engine": engine}
    having = {name: engines[engine] for name, engines in known.items() if engine in engines}
    if "" in known and not any(_touches(f, engine) for f in fields):
        return entry  # the engine itself says where there is none of that name
    own = having.get(cell)
    if own is None:
        own = _shared(run, having, engine, cell, fields, file)
    first = next(name for name, identity in having.items() if identity == own)  # equal ones are one engine of the plan
    return {**entry, "cell": first}


def _shared(
    run: str, having: Recorded, engine: str, cell: str, fields: Mapping[str, Any], file: YamlFile
) -> Mapping[str, Any]:
    """The identity that ``engine`` has in all recorded cells. Raises JobError where there is none, or several."""
    where = file.where(("sweep",) if cell else ("engines", engine))
    touched = next((f for f in fields if _touches(f, engine)), None)
    if touched is not None and having:
        what = f"cell '{cell}' sets '{touched}', and the replayed run {run} has no cell of that name"
        raise JobError(what, where=where, hint=did_you_mean(cell, [c for c in having if c]))
    if not having:
        raise JobError(f"engine '{engine}' of cell '{cell}' is not one of the replayed run {run}", where=where)
    first, *others = having.values()
    if any(other != first for other in others):
        what = f"'engines.{engine}' is not the same in all cells of the replayed run {run}, and none is named '{cell}'"
        hint = f"Its cells: {', '.join(having)}. Name one: engines.{engine}: {{use: replay, run: …, cell: …}}."
        raise JobError(what, where=where, hint=hint)
    return first


def _touches(field: str, engine: str) -> bool:
    """Whether a field of a sweep may change ``engine``."""
    return field == "engines" or field.split(".")[:2] == ["engines", engine]
