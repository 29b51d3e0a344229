"""Job files: what a user asks for, checked in full before anything starts.

The fields under ``run`` and ``tracking`` say how and where. Schema, methods, engines, roles, trials, seed and limits of
a unit say what, and make up the job's digest. Data is not in it: each dialogue's own content hash decides.
"""

from __future__ import annotations

import re
import reprlib
import types
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from dialoom import registry
from dialoom.errors import DialoomError, JobError
from dialoom.prices import Price
from dialoom.text import printable
from dialoom.yaml_file import Path_, YamlFile, read_yaml

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
MOST = 2**53
"""Whole numbers in a job stay below it: every JSON reader keeps them exact."""
Count = Annotated[int, Field(ge=1, le=MOST)]


class _Part(BaseModel, extra="forbid", frozen=True):
    """Settings refuse unknown fields."""


class DataConfig(_Part):
    """What to read."""

    reader: str
    """Name of a reader: ``sgd``, ``multiwoz``, ``chat``, or an import path."""
    paths: tuple[str, ...] = Field(min_length=1)
    """Files, folders or globs; relative ones from the job file's folder. ``$NAME`` takes an environment variable."""
    options: dict[str, Any] = {}
    """The reader's own settings."""
    limit: Count | None = None
    """The first so many dialogues only."""
    stride: int = Field(default=1, ge=1)
    """Of so many dialogues the first; 1 takes all. ``limit`` counts those taken."""

    @field_validator("paths", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class SchemaConfig(_Part):
    """Which services there are."""

    path: str
    """Service definitions (SGD or MultiWOZ 2.2 JSON) or a dialoom schema (YAML)."""
    seen: str | None = None
    """The training split's schema: a service of this name there counts as seen."""


class MethodEntry(BaseModel, extra="allow", frozen=True):
    """One method of the job; fields other than these two are the method's own settings."""

    use: str
    """Name of a method, or an import path."""
    name: Name | None = None
    """Its name in this job's traces; ``use`` by default."""

    @property
    def settings(self) -> dict[str, Any]:
        """The method's own settings as given."""
        return dict(self.model_extra or {})


class EngineEntry(BaseModel, extra="allow", frozen=True):
    """One engine of the job; fields other than this one are the engine's own settings."""

    use: str
    """Name of an engine: ``vllm``, ``openai``, ``scripted``, ``replay``, or an import path."""

    @property
    def settings(self) -> dict[str, Any]:
        """The engine's own settings as given."""
        return dict(self.model_extra or {})


class RunConfig(_Part):
    """How to run. Not part of the digest: changing it never makes another run."""

    root: str = "runs"
    """Folder that holds run folders; relative to the working directory. Any fsspec URL."""
    workers: int = Field(default=0, ge=0)
    """Worker actors; 0 takes one for each 128 calls in flight."""
    units_per_worker: int = Field(default=0, ge=0)
    """Units a worker runs at once; 0 takes what keeps the engines full."""
    commit_s: float = Field(default=2.0, gt=0, le=60)
    """Finished units are committed at least this often at first; after hours of work about once a minute."""
    max_attempts: int = Field(default=8, ge=1)
    """Tries of one call before its unit ends as ``infrastructure``."""
    backoff_s: float = Field(default=0.5, ge=0)
    """First wait before a retry; doubled each time, at most 60 s."""
    ray_metrics: bool = False
    """Publish the live figures as Ray metrics, for a cluster's dashboards."""
    reuse: tuple[str, ...] = ()
    """Run folders whose recorded calls may answer this run's."""


class LimitConfig(_Part):
    """Where to stop, with everything so far kept. Limits of a unit are part of the digest; those of the job are not."""

    unit_calls: Count | None = None
    """Model calls of one unit."""
    unit_tokens: Count | None = None
    """Prompt and output tokens of one unit."""
    unit_s: float | None = Field(default=None, gt=0)
    """Wall seconds of one unit."""
    tokens: Count | None = None
    """Prompt and output tokens that this session may pay for; replayed calls are free."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Dollars that this session may pay for tokens and for GPUs by the hour; needs a price for every engine."""
    wall_s: float | None = Field(default=None, gt=0)
    """Wall seconds of this session, from the first lease."""
    error_share: float | None = Field(default=0.5, gt=0, le=1)
    """Share of this session's units that may end as ``infrastructure``, counted from the twentieth unit on."""
    stall_s: float = Field(default=900.0, gt=0)
    """Seconds without a finished call or unit after which the run gives up and says why."""
    drain_s: float = Field(default=120.0, ge=0)
    """Seconds that calls under way get when the run stops; after that their units end as they are."""


class SweepConfig(_Part):
    """Cells of a sweep: all combinations of ``grid``, and each entry of ``cells``; fields as ``--set`` writes them.

    A field begins with ``methods``, ``engines``, ``roles`` or ``seed``; an item of a list goes by its number or name.
    """

    grid: dict[str, tuple[Any, ...]] = {}
    """Field to its values."""
    cells: tuple[dict[str, Any], ...] = ()
    """Fields and values of one cell each; ``name`` names it."""


class TrackingConfig(_Part):
    """Where the experiment is logged. Not part of the digest."""

    enabled: bool = True
    """False logs nothing."""
    uri: str | None = None
    """Tracking URI; MLFLOW_TRACKING_URI, else a SQLite store in the run root."""
    experiment: str = "dialoom"
    """Experiment name."""


class Job(_Part):
    """A whole job file."""

    name: Name
    """Names the run folder and the MLflow run."""
    data: DataConfig
    domain: SchemaConfig = Field(alias="schema")
    """The domain schema (field ``schema`` in the file)."""
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    engines: dict[Name, EngineEntry] = Field(min_length=1)
    roles: dict[str, str] = {}
    """Role to engine name; a job with one engine needs none."""
    trials: int = Field(default=1, ge=1, le=10_000)
    """Repeats of every unit."""
    seed: int = Field(default=0, ge=0, le=MOST)
    """Seed of everything that draws."""
    prices: dict[str, Price] = {}
    """Prices by name, beside and before dialoom's own dated table. Not part of the digest."""
    scores: tuple[str, ...] = ()
    """Metric definitions; empty takes those that fit the data."""
    sweep: SweepConfig | None = None
    """Runs the job once for each cell, with shared engines and calls."""
    limits: LimitConfig = LimitConfig()
    run: RunConfig = RunConfig()
    tracking: TrackingConfig = TrackingConfig()

    @field_validator("methods", mode="before")
    @classmethod
    def _names_are_entries(cls, value: Any) -> Any:
        if isinstance(value, list):
            return [{"use": v} if isinstance(v, str) else v for v in value]
        return value


def load_job(path: str | Path, overrides: Mapping[str, Any] | None = None) -> tuple[Job, YamlFile]:
    """The job at ``path``; ``overrides`` maps dotted fields to values (the command line's).

    Raises JobError that names file, line and field, what was found and what is allowed.
    """
    file = read_yaml(Path(path))
    given = {tuple(dotted.split(".")): value for dotted, value in (overrides or {}).items()}
    for names, value in given.items():
        _override(file.data, names, value)
    file = replace(file, given=frozenset(given))
    return parse_part(Job, file.data, file, ()), file


def _override(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        if data.get(name) is None:
            data[name] = {}
        data = data[name]
        if not isinstance(data, dict):
            raise JobError(
                "does not name a field", where=f"--set {'.'.join(path)}", hint=f"'{name}' holds a value, not fields."
            )
    data[path[-1]] = value


Model = typing.TypeVar("Model", bound=BaseModel)


def parse_part(model: type[Model], data: Any, file: YamlFile, prefix: Path_) -> Model:
    """``data`` as ``model``; the first problem becomes a JobError placed at its line of ``file``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors()
        first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
        loc = tuple(p for p in first["loc"] if p != "[key]" and not (isinstance(p, str) and p.startswith("function-")))
        more = f" ({len(problems) - 1} more problems.)" if len(problems) > 1 else ""
        what, hint = _explain(model, first, loc)
        raise JobError(what, where=file.where(prefix + loc), hint=(hint + more).strip()) from None


def _explain(model: type[BaseModel], problem: Any, loc: Path_) -> tuple[str, str]:
    kind, found = problem["type"], _shown(problem.get("input"))
    if kind == "extra_forbidden":
        owner = _model_at(model, loc[:-1])
        known = [f.alias or n for n, f in owner.model_fields.items()] if owner else []
        return f"unknown field '{printable(str(loc[-1]), 80)}'", registry.did_you_mean(str(loc[-1]), known)
    if kind == "missing":
        return "this field is required and missing", ""
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        return f"found {found}", registry.did_you_mean(str(problem["input"]), known)
    allowed = problem["msg"][0].lower() + problem["msg"][1:]
    for pattern, word in _WORDS:
        allowed = re.sub(pattern, word, allowed)
    return f"found {found}: {allowed}", ""


_WORDS = (
    (r"valid dictionary( or instance of \w+)?", "mapping of fields"),
    (r"valid tuple|valid list", "list"),
    (r"tuple should have at least (\d+) items? after validation, not \d+", r"the list needs at least \1"),
    (r"value error, ", ""),
)
"""pydantic's words, in those of a job file."""


def _shown(value: Any) -> str:
    """What was found, at most 80 characters of it."""
    try:
        return printable(reprlib.repr(value) if isinstance(value, (dict, list, tuple)) else repr(value), 80)
    except ValueError:  # a number too long to be written out
        return "a very long number"


def _model_at(model: type[BaseModel], loc: Path_) -> type[BaseModel] | None:
    """The settings class that a path of fields leads to."""
    current: Any = model
    for part in loc:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {f.alias or n: f.annotation for n, f in current.model_fields.items()}
            if part not in fields:
                return None
            current = fields[str(part)]
        else:
            args = [a for a in typing.get_args(current) if a is not Ellipsis]
            current = args[-1] if args else None
        if isinstance(current, types.UnionType):
            current = next((a for a in typing.get_args(current) if a is not type(None)), None)
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def plugin_settings(kind: str, entry: MethodEntry | EngineEntry, file: YamlFile, prefix: Path_) -> tuple[Any, Any]:
    """The plug-in that ``entry`` names and its checked settings. Raises JobError with the entry's line."""
    try:
        plugin = registry.find(kind, entry.use)
    except DialoomError as error:
        raise JobError(error.what, where=file.where((*prefix, "use")), hint=error.hint) from error
    if not hasattr(plugin, "config"):
        what = f"'{entry.use}' is no {kind.removesuffix('s')}: it has no 'config'"
        raise JobError(what, where=file.where((*prefix, "use")), hint="Name the module's PLUGIN.")
    return plugin, parse_part(plugin.config, entry.settings, file, prefix)
