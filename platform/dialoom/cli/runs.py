"""``dialoom run``, ``validate`` and ``log``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dialoom.run import RunResult
    from dialoom.runtime.plan import Plan
    from dialoom.tracking.tracker import Tracker

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="Job file (YAML).", show_default=False)]
Set = Annotated[
    list[str], typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the job, e.g. data.limit=64.")
]
LogFormat = Annotated[str, typer.Option(help="Progress: auto, live, plain, json or quiet.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("run")(run)
    app.command("validate")(validate)
    app.command("estimate")(estimate)
    app.command("log")(log)


def overrides(settings: list[str]) -> dict[str, Any]:
    """``field=value`` words as a mapping; values are read as YAML. Raises JobError."""
    from dialoom.errors import JobError
    from dialoom.yaml_file import yaml_value

    found = {}
    for word in settings:
        field, sign, value = word.partition("=")
        if not sign or not field:
            raise JobError(f"--set takes FIELD=VALUE, found '{word}'", hint="For example --set data.limit=64.")
        found[field] = yaml_value(value, f"--set {field}")
    return found


def planned(job_file: Path, settings: list[str], replay: str | None = None) -> Plan:
    """The plan of a job file, checked in full. Raises JobError and SchemaError.

    With ``replay`` every engine is one that stands for the engine of the same name, and cell, in that run. Modules
    beside the job file can be imported, after all others.
    """
    from dialoom.job import load_job
    from dialoom.runtime.plan import make_plan

    job, file = load_job(job_file, overrides(settings))
    sys.path.append(str(file.path.parent.absolute()))
    if replay is not None and not any(s.startswith("name=") for s in settings):
        job = job.model_copy(update={"name": f"{job.name}-replay"})
    return make_plan(job, file, replay)


def run(
    job: JobFile,
    set_: Set = [],  # noqa: B006 - typer reads it once
    reuse: Annotated[list[str], typer.Option(help="Run folder whose recorded calls may answer.")] = [],  # noqa: B006
    replay: Annotated[
        str | None, typer.Option(help="Answer every call from this run's call log; no engine is started.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Stop once this session has paid so much (limits.cost_usd).")
    ] = None,
    tracking: Annotated[bool, typer.Option(help="Log to MLflow.")] = True,
    log_format: LogFormat = "auto",
) -> None:
    """Run a job, or go on where it stopped: a finished unit is never done again.

    Exit status: 0 every unit has its result; 3 some units have none (bad input, or owed to a rerun); 4 the run stopped
    early; 130 interrupted; 2 nothing was started.
    """
    settings = list(set_)
    if reuse:
        settings.append(f"run.reuse={json.dumps(list(reuse))}")
    if max_cost is not None:
        settings.append(f"limits.cost_usd={max_cost}")
    plan = planned(job, settings, replay)
    result = execute(plan, tracking=tracking, log_format=log_format)
    raise typer.Exit(result.status)


def execute(plan: Plan, *, tracking: bool = True, log_format: str = "auto") -> RunResult:
    """Run ``plan`` with the progress line, log it, and print what came of it."""
    from dialoom import run as runner
    from dialoom.cli.summary import show_result
    from dialoom.cli.terminal import ProgressView, check_format
    from dialoom.errors import DialoomError
    from dialoom.logs import log_to

    check_format(log_format)
    folder = runner.run_folder(plan)
    folder.make()
    handler = log_to(folder.path / "log.jsonl")
    tracker = make_tracker(plan) if tracking and plan.options.tracking.enabled else None
    units = len(plan.variants) * plan.options.trials
    with ProgressView(log_format, "dialogues" if units == 1 else "units") as view:
        try:
            result = runner.run(plan, folder=folder, observe=view, tracker=tracker)
        except BaseException:
            if tracker is not None:
                tracker.fail()
            raise
    if tracker is not None:
        try:
            tracker.finish()
            result.tracking = tracker.uri
        except DialoomError as error:
            result.notes.append(f"not logged to MLflow: {error}")
    show_result(result)
    logging.getLogger("dialoom").removeHandler(handler)
    return result


def make_tracker(plan: Plan) -> Tracker:
    """The tracker of a plan."""
    from dialoom.run import run_folder
    from dialoom.tracking.tracker import Tracker, default_uri

    options = plan.options
    return Tracker(run_folder(plan), options.tracking.uri or default_uri(options.run.root), options.tracking.experiment)


def validate(job: JobFile, set_: Set = []) -> None:  # noqa: B006
    """Check a job file: fields, plug-ins, schema, data paths. Starts nothing."""
    from dialoom.cli.summary import show_plan
    from dialoom.reader import open_dialogues

    plan = planned(job, list(set_))
    data = plan.options.data
    next(open_dialogues(data.reader, data.paths, data.options), None)
    show_plan(plan)


def estimate(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    from_: Annotated[
        str | None, typer.Option("--from", help="An earlier run of the same methods, instead of a sample.")
    ] = None,
    sample: Annotated[int, typer.Option(min=4, help="Dialogues of the sample, spread over the input.")] = 16,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Calls, tokens, money and time of a job before it runs, with ranges; a sample of it is run for that."""
    from dataclasses import asdict

    import orjson

    from dialoom import run as runner
    from dialoom.cli.results import existing_run
    from dialoom.cli.summary import show_estimate
    from dialoom.cli.terminal import ProgressView
    from dialoom.estimate import estimate as estimated
    from dialoom.estimate import input_size, sample_job
    from dialoom.runtime.scratch import Scratch

    plan = planned(job, list(set_))
    size = input_size(plan)
    if from_ is not None:
        found = estimated(plan, existing_run(from_, "dialogues", "calls"), size)
    else:
        with Scratch("dialoom-estimate-") as path, ProgressView() as view:
            part = sample_job(plan, sample, path, size)
            result = runner.run(part, observe=view, draw=False)
            if result.error is not None:
                raise result.error
            found = estimated(plan, result.folder, size)
    show_estimate(found)
    if json is not None:
        json.write_bytes(orjson.dumps(asdict(found), option=orjson.OPT_INDENT_2) + b"\n")


def log(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)],
    uri: Annotated[str | None, typer.Option(help="Tracking URI; the job's own by default.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Experiment; the job's own by default.")] = None,
) -> None:
    """Log a finished run to MLflow, from its folder alone. Logging it twice updates the same MLflow run."""
    import yaml

    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out
    from dialoom.errors import JobError
    from dialoom.job import TrackingConfig
    from dialoom.tracking.tracker import HIDDEN, Tracker, default_uri, shown_uri

    folder = existing_run(run_folder, "dialogues", "turns", "calls")
    job = yaml.safe_load(folder.read("job.yaml") or b"{}") or {}
    config = TrackingConfig.model_validate(job.get("tracking") or {})
    where = uri or config.uri or default_uri(str(folder.path.parent))
    if HIDDEN in where:
        hint = (
            "Give it with --uri, or set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD and leave it out there."
        )
        raise JobError("the run folder holds the tracking URI without its password", where=where, hint=hint)
    run_id = Tracker(folder, where, experiment or config.experiment).finish()
    out.print(f"logged as MLflow run {run_id} at {shown_uri(where)}", soft_wrap=True)
