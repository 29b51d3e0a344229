"""Sweeps: one plan whose variants are the cells of a grid or list, with engines, calls and data shared."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dialoom import registry
from dialoom.errors import JobError
from dialoom.job import Job, SweepConfig, parse_part
from dialoom.runtime.plan import EngineSpec, Plan, Variant, dumped, located_setting, placed, plan_cell
from dialoom.yaml_file import YamlFile

FIELDS = ("methods", "engines", "roles", "seed")
"""What a cell may change. Other data or another schema is another job: ``dialoom compare`` sets runs side by side."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._=,+-]+")


def plan_sweep(job: Job, sweep: SweepConfig, file: YamlFile) -> Plan:
    """The plan of all cells together. Raises JobError placed at the sweep for a cell that is wrong."""
    plans: dict[str, Plan] = {}
    cells: dict[str, dict[str, Any]] = {}
    for name, fields in cells_of(sweep, file):
        with placed(file, "sweep"):
            plans[name] = plan_cell(*applied(fields, file))
        cells[name] = fields
    if not plans:
        raise JobError("the sweep has no cell", where=file.where(("sweep",)), hint="Give it a grid or cells.")
    engines: dict[str, EngineSpec] = {}
    variants: list[Variant] = []
    for name, plan in plans.items():
        renamed = _merged(engines, plan)
        for variant in plan.variants:
            roles = {role: renamed[engine] for role, engine in variant.roles.items()}
            variants.append(replace(variant, cell=name, roles=roles))
    first = next(iter(plans.values()))
    identity = {"cells": {name: plan.identity for name, plan in plans.items()}}
    prompts = {f"{name}/{path}": text for name, plan in plans.items() for path, text in plan.prompts.items()}
    return replace(
        first,
        name=job.name,
        variants=tuple(variants),
        engines=engines,
        job=_resolved(job, file, first, cells),
        identity=identity,
        prompts=prompts,
        cells=cells,
    )


def _resolved(job: Job, file: YamlFile, first: Plan, cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The job as it was before any cell, and all cells by name, with paths that hold from anywhere.

    Methods and engines have their own fields only: a default filled in need not fit what a cell makes of them.
    """
    base = file.path.parent
    resolved = dumped(job)
    resolved |= {part: first.job[part] for part in ("data", "schema", "run")}  # no cell changes them
    resolved["engines"] = _located(("engines",), resolved["engines"], base)
    located = ({f: _located(f.split("."), v, base) for f, v in fields.items()} for fields in cells.values())
    resolved["sweep"] = {"grid": {}, "cells": [{"name": n, **f} for n, f in zip(cells, located, strict=True)]}
    return resolved


def _located(field: Sequence[str], value: Any, base: Path) -> Any:
    """What a field is set to, with the paths in the settings of engines from ``base``."""
    if field[0] != "engines":
        return value
    if len(field) < 3 and isinstance(value, Mapping):
        return {name: _located((*field, str(name)), inner, base) for name, inner in value.items()}
    if len(field) != 3:
        return value
    try:
        return located_setting(field[2], value, base)
    except JobError:  # every cell puts another value here, or its plan would have failed
        return value


def cells_of(sweep: SweepConfig, file: YamlFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """(unique name, fields) of every cell. Raises JobError for a field that no cell may change."""
    taken: set[str] = set()
    for number, fields in enumerate([*_grid(sweep.grid), *(dict(c) for c in sweep.cells)]):
        given = fields.pop("name", None)
        name = _UNSAFE.sub("-", str(given) if given is not None else _label(fields))[:60] or f"cell-{number}"
        if name in taken:
            ends = (f"-{n}" for n in itertools.count(number))
            name = next(other for end in ends if (other := f"{name[: 60 - len(end)]}{end}") not in taken)
        taken.add(name)
        for field in fields:
            if field.split(".")[0] not in FIELDS:
                hint = (
                    f"A cell may change {', '.join(FIELDS)}. Other data or schemas are other jobs: compare their runs."
                )
                raise JobError(f"a sweep cannot change '{field}'", where=file.where(("sweep",)), hint=hint)
        yield name, fields


def _grid(grid: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    if not grid:
        return
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _label(fields: Mapping[str, Any]) -> str:
    """Field names as short as they stay distinct, each with its value."""
    last = [f.rsplit(".", 1)[-1] for f in fields]
    names = last if len(set(last)) == len(last) else list(fields)
    return ",".join(f"{n}={v}" for n, v in zip(names, fields.values(), strict=True))


def applied(fields: Mapping[str, Any], file: YamlFile) -> tuple[Job, YamlFile]:
    """The job of one cell. Raises JobError for a field that is not there."""
    data = copy.deepcopy(file.data)
    data.pop("sweep", None)
    data["methods"] = [{"use": m} if isinstance(m, str) else m for m in data.get("methods") or []]
    for field, value in fields.items():
        _set(data, field, copy.deepcopy(value))  # a later field may change what lies in it
    cell = YamlFile(file.path, data, file.lines)
    return parse_part(Job, data, cell, ()), cell


def _set(data: Any, field: str, value: Any) -> None:
    *path, last = field.split(".")
    for part in path:
        data = _item(data, part, field)
    if isinstance(data, list):
        data[_index(data, last, field)] = value
    elif isinstance(data, dict):
        data[last] = value
    else:
        raise JobError(f"'{field}' does not name a field", hint="Write it like methods.0.k_max.")


def _item(data: Any, part: str, field: str) -> Any:
    if isinstance(data, list):
        return data[_index(data, part, field)]
    if isinstance(data, dict):
        return data.setdefault(part, {})
    raise JobError(f"'{field}' does not name a field", hint=f"'{part}' holds a value, not fields.")


def _index(items: list[Any], part: str, field: str) -> int:
    if part.isdigit() and int(part) < len(items):
        return int(part)
    names = [str(i.get("name") or i.get("use")) if isinstance(i, dict) else str(i) for i in items]
    if part in names:
        return names.index(part)
    raise JobError(f"'{field}' names no item '{part}'", hint=registry.did_you_mean(part, names))


def _merged(engines: dict[str, EngineSpec], plan: Plan) -> dict[str, str]:
    """Add a cell's engines; the same settings are the same engine. Returns the cell's names for them."""
    renamed = {}
    for name, spec in plan.engines.items():
        same = next((n for n, s in engines.items() if (s.use, s.settings) == (spec.use, spec.settings)), None)
        if same is None:
            numbered = (name if i == 1 else f"{name}-{i}" for i in itertools.count(1))
            same = next(n for n in numbered if n not in engines)
            engines[same] = spec
        renamed[name] = same
    return renamed


def with_kept_names(plan: Plan, recorded: Mapping[str, Mapping[str, Any]]) -> Plan:
    """A sweep's plan with the names that its engines had in its folder before.

    ``recorded`` are the settings of every engine that ran there. With other cells than before, engines are numbered
    otherwise; traces and figures of the folder know each by one name.
    """
    if not plan.cells:
        return plan
    names: dict[str, str] = {}
    for name, spec in plan.engines.items():
        names[name] = next((n for n, entry in recorded.items() if entry == {"use": spec.use, **spec.settings}), "")
    for name in (n for n, kept in names.items() if not kept):
        numbered = (name if i == 1 else f"{name}-{i}" for i in itertools.count(1))
        names[name] = next(n for n in numbered if n not in recorded and n not in names.values())
    variants = tuple(replace(v, roles={role: names[e] for role, e in v.roles.items()}) for v in plan.variants)
    return replace(plan, variants=variants, engines={names[n]: s for n, s in plan.engines.items()})


def stages(plan: Plan, gpus: float) -> list[Plan]:
    """The plan in parts whose engines fit together: by GPUs, and on a processor one loaded model at a time.

    Cells with the same engines stay together; order is that of the cells otherwise.
    """
    parts: list[tuple[set[str], list[Variant]]] = []
    for variant in plan.variants:
        needed = set(variant.roles.values())
        home = next((p for p in parts if needed <= p[0]), None)
        home = home or next((p for p in parts if _fit(plan, p[0] | needed, gpus)), None)
        if home is None:
            parts.append((needed, [variant]))
        else:
            home[0].update(needed)
            home[1].append(variant)
    return [
        replace(plan, variants=tuple(variants), engines={n: s for n, s in plan.engines.items() if n in names})
        for names, variants in parts
    ]


def _fit(plan: Plan, names: set[str], gpus: float) -> bool:
    specs = [plan.engines[n] for n in names]
    needed = sum(s.replicas * s.resources.get("num_gpus", 0.0) for s in specs)
    models_on_cpu = sum(s.hosted and s.heavy and not s.resources.get("num_gpus") for s in specs)
    return needed <= gpus and models_on_cpu <= 1
