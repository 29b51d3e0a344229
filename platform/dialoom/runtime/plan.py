"""A job made concrete: plug-ins found, settings checked, schema loaded, digest taken. Workers get it whole."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

import dialoom
from dialoom import registry
from dialoom.engine import EngineIdentity
from dialoom.errors import DialoomError, EngineError, JobError, SchemaError
from dialoom.job import EngineEntry, Job, MethodEntry, plugin_settings
from dialoom.prices import Price, find_price
from dialoom.schema import Schema
from dialoom.text import printable
from dialoom.unit import UnitKey
from dialoom.yaml_file import YamlFile

CALLS_PER_WORKER = 128
"""Calls in flight that one worker process drives without becoming the limit (``dialoom bench overhead``)."""
SURPLUS = 1.5
"""Units in work for each call that the engines take."""


@dataclass(frozen=True)
class Part:
    """A plug-in by name with its checked settings."""

    use: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class EngineSpec(Part):
    """An engine of the plan. ``in_flight`` is per replica; ``hosted`` engines live in actors of their own.

    ``adaptive`` ones find their own number of calls in flight; ``sources`` are runs whose recorded calls they use;
    ``heavy`` ones hold a model in this cluster's memory.
    """

    identity: EngineIdentity = field(default_factory=lambda: EngineIdentity("", ""))
    replicas: int = 1
    in_flight: int = 1
    hosted: bool = False
    adaptive: bool = False
    heavy: bool = False
    sources: tuple[str, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    price: Price | None = None

    def in_flight_in(self, place: int, workers: int) -> int:
        """Calls that worker number ``place`` of ``workers`` may have in flight at each replica.

        Together they are the cap, as long as there are no more workers than that.
        """
        return max(1, self.in_flight // workers + (place < self.in_flight % workers))


@dataclass(frozen=True)
class Variant(Part):
    """One method with its settings and engines: what a unit's (method, cell) stands for."""

    method: str = ""
    cell: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    declares: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """Everything a worker needs. Holds no secret: engines name environment variables only."""

    name: str
    variants: tuple[Variant, ...]
    engines: Mapping[str, EngineSpec]
    schema: Schema
    seen_services: tuple[str, ...] | None
    job: Mapping[str, Any]
    identity: Mapping[str, Any]
    prompts: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Sweep cell to the fields that make it; empty without a sweep."""

    @cached_property
    def digest(self) -> str:
        """Hex digest (32 characters) of what decides the results: see :attr:`identity`."""
        return digest_of(self.identity)

    @cached_property
    def options(self) -> Job:
        """The job, checked again from its resolved form."""
        return Job.model_validate(self.job)

    @property
    def recorded(self) -> tuple[str, ...]:
        """Other runs whose recorded calls may answer: those to reuse, and those that replay engines stand for."""
        replayed = [run for engine in self.engines.values() for run in engine.sources]
        return tuple(dict.fromkeys([*self.options.run.reuse, *replayed]))

    @property
    def notes(self) -> list[str]:
        """What may surprise about the plan: engines at different URLs whose calls are taken for the same."""
        found = []
        for (a, one), (b, two) in itertools.combinations(self.engines.items(), 2):
            urls = one.settings.get("base_url"), two.settings.get("base_url")
            if urls[0] != urls[1] and one.identity == two.identity:
                found.append(
                    f"engines '{a}' and '{b}' have different URLs but the same identity: what one has answered is "
                    "never asked of the other. Give each a 'revision' of its own if they may answer differently."
                )
        return found

    @property
    def capacity(self) -> int:
        """Calls in flight that all engines take together."""
        return sum(e.replicas * e.in_flight for e in self.engines.values())

    @property
    def workers(self) -> int:
        """Worker actors to start: at most as many as an engine within workers takes calls."""
        most = min((e.in_flight for e in self.engines.values() if not e.hosted), default=self.capacity)
        return max(1, min(self.options.run.workers or math.ceil(self.capacity / CALLS_PER_WORKER), most))

    @property
    def units_per_worker(self) -> int:
        """Units in work at once in one worker: enough that calls wait whenever an engine has room, even after a pause
        of the worker in which many were answered."""
        return self.options.run.units_per_worker or math.ceil(self.capacity / self.workers * SURPLUS) + 1

    @property
    def leased_per_worker(self) -> int:
        """Units leased to one worker at once: those in work and a short backlog. A long one would leave other workers
        idle at the end of the job."""
        return self.units_per_worker + max(2, self.units_per_worker // 4)

    def units(self, dialogue_id: str) -> list[UnitKey]:
        """Every unit of one dialogue."""
        return [
            UnitKey(dialogue_id, v.method, v.cell, trial) for trial in range(self.options.trials) for v in self.variants
        ]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """``field: old -> new`` for every field in which two identities differ."""
    a, b = dict(flat(old)), dict(flat(new))
    pairs = ((k, a.get(k, "(absent)"), b.get(k, "(absent)")) for k in sorted(a.keys() | b.keys()))
    return [f"{k}: {x} -> {y}" for k, x, y in pairs if x != y]


def flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every leaf of a tree of mappings."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree


def digest_of(tree: Any) -> str:
    """Hex digest (32 characters) of a tree that JSON can hold."""
    return hashlib.blake2b(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _check_writable(identity: Mapping[str, Any]) -> None:
    """Raises JobError for a setting that no JSON can hold: a number of over 64 bits, half a surrogate pair."""
    for name, value in flat(identity):
        try:
            orjson.dumps(value)
        except TypeError as error:
            raise JobError(f"{name}: {printable(repr(value), 60)} cannot be recorded: {error}") from error


def located(path: str, base: Path) -> str:
    """``path`` with environment variables filled in, relative ones from ``base``. Raises JobError for an unset one."""
    filled = os.path.expandvars(path)
    if "$" in filled:
        raise JobError(f"'{path}' names an environment variable that is not set", hint="Set it, or write the path out.")
    if "\0" in filled:
        raise JobError(f"'{path}' is no path: it holds a null character")
    try:
        return filled if "://" in filled else str(Path(base, Path(filled).expanduser()))
    except RuntimeError as error:
        raise JobError(f"'{path}' names no home folder", hint="Write the path out.") from error


PATH_SETTINGS = ("answers", "model", "run")
"""Settings of engines that may be paths; a model is one only where it looks like one."""


def located_setting(key: str, value: Any, base: Path) -> Any:
    """A setting of an engine, from ``base`` where it is a path. Raises JobError as :func:`located`."""
    if key not in PATH_SETTINGS or not isinstance(value, str):
        return value
    is_path = value.startswith((".", "~", "$")) or (key != "model" and value)
    return located(value, base) if is_path else value


def make_plan(job: Job, file: YamlFile, replay: str | None = None) -> Plan:
    """The plan of ``job``, sweep and all. Raises JobError or SchemaError with file and line; starts nothing.

    With ``replay``, a run folder, every engine is one that stands for that run's.
    """
    if replay is not None:
        from dialoom.runtime.replayed import replayed

        job = replayed(job, file, replay)
    if job.sweep is None:
        return plan_cell(job, file)
    from dialoom.runtime.sweep import plan_sweep

    return plan_sweep(job, job.sweep, file)


def plan_cell(job: Job, file: YamlFile) -> Plan:
    """The plan of a job without a sweep, or of one cell."""
    base = file.path.parent
    data = _data(job, file, base)
    schema, seen = _schemas(job, file, base)
    engines = {name: _engine(entry, job, file, name, base) for name, entry in job.engines.items()}
    _check_cost_limit(job, engines, file)
    variants: list[Variant] = []
    prompts: dict[str, str] = {}
    for i, entry in enumerate(job.methods):
        variant, texts = _variant(entry, job, file, i, schema)
        if any(v.method == variant.method for v in variants):
            raise JobError(
                f"two methods are named '{variant.method}'", where=file.where(("methods", i)), hint="Give one a 'name'."
            )
        variants.append(variant)
        prompts.update({f"{variant.method}/{name}": text for name, text in texts.items()})
    _check_roles(job, file, variants)
    _check_reuse(job, file)
    _check_scores(job, file)
    identity = {
        "code": dialoom.__version__,
        "schema": schema.digest,
        "methods": {v.method: {"use": v.use, "settings": dict(v.settings), "roles": dict(v.roles)} for v in variants},
        "engines": {n: identity_record(e.identity) for n, e in engines.items()},
        "prompts": {name: digest_of(text) for name, text in prompts.items()},
        "seed": job.seed,
        "trials": job.trials,
        "limits": job.limits.model_dump(include={"unit_calls", "unit_tokens", "unit_s"}),
    }
    _check_writable(identity)
    with placed(file, "data", "options"):
        resolved = dumped(job)
    resolved["data"]["paths"] = data.paths
    resolved["data"]["options"] |= data.located_options
    resolved["schema"] = {n: p and located(p, base) for n, p in resolved["schema"].items()}
    resolved["run"]["reuse"] = [run if "://" in run else str(Path(run).absolute()) for run in job.run.reuse]
    resolved["roles"] = {r: e for v in variants for r, e in v.roles.items()}
    resolved["methods"] = [{"use": v.use, "name": v.method, **v.settings} for v in variants]
    resolved["engines"] = {n: {"use": e.use, **e.settings} for n, e in engines.items()}
    return Plan(job.name, tuple(variants), engines, schema, seen, resolved, identity, prompts)


def dumped(job: Job) -> dict[str, Any]:
    """All fields of the job as plain data. Raises JobError for what cannot be recorded."""
    try:
        return job.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError as error:
        raise JobError(
            f"holds what cannot be recorded: {error}", hint="Use texts, numbers, lists, mappings."
        ) from error


def _check_roles(job: Job, file: YamlFile, variants: list[Variant]) -> None:
    """Raises JobError for a role that no method of the job calls: a slip that would go unnoticed."""
    called = sorted({role for v in variants for role in v.roles})
    for role in job.roles:
        if role not in called:
            hint = registry.did_you_mean(role, called)
            raise JobError(f"no method of this job calls a role '{role}'", where=file.where(("roles", role)), hint=hint)


def _check_scores(job: Job, file: YamlFile) -> None:
    """Raises JobError for a score that there is not: it would be found out at the end of the run."""
    from dialoom.scoring import definition

    for i, name in enumerate(job.scores):
        with placed(file, "scores", i):
            definition(name)


def _check_reuse(job: Job, file: YamlFile) -> None:
    """Raises JobError for a folder to reuse that holds no calls."""
    for i, run in enumerate(job.run.reuse):
        if "://" not in run and not Path(run, "calls").is_dir():
            hint = f"Name a run folder; seen from {Path.cwd()}."
            raise JobError(f"'{run}' holds no recorded calls", where=file.where(("run", "reuse", i)), hint=hint)


@contextlib.contextmanager
def placed(file: YamlFile, *path: str | int) -> Iterator[None]:
    """Errors that name no place get the line of a field of the job file; an engine's become errors of the job."""
    try:
        yield
    except EngineError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise JobError(what, where=file.where(path), hint=error.hint) from error
    except (JobError, SchemaError) as error:
        if error.where:
            raise
        raise type(error)(error.what, where=file.where(path), hint=error.hint) from error
    except DialoomError:
        raise
    except Exception as error:  # the boundary to plug-ins of others: what they raise is an error of the job
        what = f"{type(error).__name__}: {error}"
        raise JobError(what, where=file.where(path), hint="The plug-in itself fails.") from error


class _Data(NamedTuple):
    """Where the data lies, from any working directory: the paths, and those options of the reader that are paths."""

    paths: list[str]
    located_options: dict[str, str]


def _data(job: Job, file: YamlFile, base: Path) -> _Data:
    from dialoom.reader import expand_paths, open_dialogues, reader_config

    with placed(file, "data", "reader"):
        registry.find("readers", job.data.reader)
    given = job.data.options
    with placed(file, "data", "options"):
        config = reader_config(job.data.reader, given)
        options = {n: located(str(given[n]), base) for n, v in config if isinstance(v, Path) and n in given}
    with placed(file, "data", "paths"):
        paths = [located(p, base) for p in job.data.paths]
        expand_paths(job.data.reader, paths)
    with placed(file, "data", "options"):
        open_dialogues(job.data.reader, paths, {**given, **options})
    return _Data(paths, options)


def _schemas(job: Job, file: YamlFile, base: Path) -> tuple[Schema, tuple[str, ...] | None]:
    from dialoom.schema_files import load_schema

    with placed(file, "schema", "path"):
        schema = load_schema(located(job.domain.path, base))
    if job.domain.seen is None:
        return schema, None
    with placed(file, "schema", "seen"):
        seen = load_schema(located(job.domain.seen, base))
    return schema, tuple(n for n in schema.services if n in seen.services)


def _check_cost_limit(job: Job, engines: Mapping[str, EngineSpec], file: YamlFile) -> None:
    """Raises JobError for a limit in dollars with an engine whose cost cannot be counted."""
    if job.limits.cost_usd is None:
        return
    for name, engine in engines.items():
        if engine.sources:
            continue  # recorded answers cost nothing
        if engine.price is None:
            what = f"engine '{name}' has no price, so what it costs cannot be limited"
            hint = "Set its 'price' to a name of the price table or of this job's 'prices'."
        elif engine.price.gpu_hour and not engine.hosted:
            what = f"engine '{name}' has a price by the GPU hour and does not run here, so its hours cannot be counted"
            hint = "Give it a price for tokens, or limit its time: limits.wall_s."
        else:
            continue
        raise JobError(what, where=file.where(("limits", "cost_usd")), hint=hint)


def _price(name: str | None, job: Job, file: YamlFile, engine: str) -> Price | None:
    if name is None:
        return None
    with placed(file, "engines", engine, "price"):
        return find_price(name, job.prices)


def _engine(entry: EngineEntry, job: Job, file: YamlFile, name: str, base: Path) -> EngineSpec:
    plugin, config = plugin_settings("engines", entry, file, ("engines", name))
    settings = _settings(config)
    for key, value in settings.items():
        with placed(file, "engines", name, key):
            settings[key] = located_setting(key, value, base)
    config = plugin.config.model_validate(settings)
    with placed(file, "engines", name):
        identity = plugin.create(config, replica=0).identity
    return EngineSpec(
        use=entry.use,
        settings=settings,
        identity=identity,
        replicas=plugin.replicas(config),
        in_flight=plugin.in_flight(config),
        hosted=plugin.hosted(config),
        adaptive=getattr(plugin, "adaptive", False),
        heavy=getattr(plugin, "heavy", False),
        sources=tuple(plugin.sources(config)) if hasattr(plugin, "sources") else (),
        resources=plugin.resources(config),
        price=_price(config.price, job, file, name),
    )


def _variant(entry: MethodEntry, job: Job, file: YamlFile, i: int, schema: Schema) -> tuple[Variant, Mapping[str, str]]:
    plugin, config = plugin_settings("methods", entry, file, ("methods", i))
    roles = {}
    for role in plugin.roles:
        name = job.roles.get(role) or (next(iter(job.engines)) if len(job.engines) == 1 else None)
        if name is None:
            raise JobError(
                f"role '{role}' has no engine",
                where=file.where(("roles",)),
                hint=f"Add 'roles: {{{role}: NAME}}'; engines here: {', '.join(job.engines)}.",
            )
        if name not in job.engines:
            hint = registry.did_you_mean(name, list(job.engines))
            raise JobError(
                f"role '{role}' names no engine of this job: '{name}'", where=file.where(("roles", role)), hint=hint
            )
        roles[role] = name
    with placed(file, "methods", i):
        plugin.create(config, schema)
        prompts = plugin.prompts(config)
    variant = Variant(
        use=entry.use,
        settings=_settings(config),
        method=entry.name or entry.use.rpartition(":")[2],
        roles=roles,
        declares=tuple(sorted(plugin.declares)),
        seed=job.seed,
    )
    return variant, prompts


def _settings(config: BaseModel) -> dict[str, Any]:
    return config.model_dump(mode="json")


def identity_record(identity: EngineIdentity) -> dict[str, Any]:
    return {
        "engine": identity.engine,
        "model": identity.model,
        "revision": identity.revision,
        "version": identity.version,
        "flags": dict(identity.flags),
        "addressed": identity.addressed,
    }
