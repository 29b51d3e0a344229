"""``dialoom bench``: measure the platform on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[Path | None, typer.Option(help="Write the figures to this file.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    bench = typer.Typer(help="Measure the platform on this machine.", no_args_is_help=True)
    bench.command("overhead")(overhead)
    bench.command("engine")(engine)
    bench.command("recover")(recover)
    bench.command("scale")(scale)
    bench.command("policies")(policies)
    app.add_typer(bench, name="bench")


def _show(title: str, results: Sequence[Any], json: Path | None, extra: Sequence[str] = ()) -> None:
    """A table with a column a result, and the same as JSON with what machine it was."""
    from dialoom.cli.terminal import out, table

    records = [asdict(r) | {name: getattr(r, name) for name in extra} for r in results]
    columns = [str(r.get("case", f"run {i + 1}" if len(records) > 1 else "value")) for i, r in enumerate(records)]
    rows = table(title, "figure", *columns, right=tuple(columns))
    for column in rows.columns[1:]:
        column.no_wrap = False  # a case is named by a few words
    for name in records[0]:
        if name != "case":
            rows.add_row(name, *(_shown(record[name]) for record in records))
    out.print(rows)
    _write(title, records, json)


def _write(title: str, records: Sequence[dict[str, Any]], json: Path | None) -> None:
    import orjson

    from dialoom.run import versions

    if json is not None:
        whole = {"bench": title, "machine": machine(), "versions": versions(), "results": records}
        json.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in sorted(value.items()))
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def machine() -> dict[str, Any]:
    """Processor count, memory, date: what a figure was measured on."""
    import datetime
    import os

    import psutil

    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def overhead(
    json: Json = None,
    case: Annotated[list[int], typer.Option(help="Only these cases, from 0.")] = [],  # noqa: B006
    scale: Annotated[float, typer.Option(help="Factor on the number of dialogues.")] = 1.0,
    repeat: Annotated[int, typer.Option(help="Times each case is measured.")] = 1,
) -> None:
    """Scripted job against bare asyncio in the same run, and processor time a call."""
    from dialoom.bench import overhead as bench

    cases = [bench.CASES[i] for i in case] or list(bench.CASES)
    _show("overhead", bench.overhead(cases * repeat, scale=scale), json)


def engine(
    run: Annotated[
        str | None, typer.Option(help="A finished run of one vLLM engine; a small one is made without.")
    ] = None,
    dialogues: Annotated[int, typer.Option(help="Synthetic dialogues where no run is given.")] = 64,
    json: Json = None,
) -> None:
    """A job's output tokens a second against the same prompts given to bare vLLM at once."""
    import tempfile

    from dialoom.bench.engine import default_job, engine_share
    from dialoom.cli.results import existing_run
    from dialoom.cli.runs import execute, planned
    from dialoom.run import run_folder

    extra = ("job_rate", "bare_rate", "share", "busy_share")
    if run is not None:
        _show("engine", [engine_share(existing_run(run, "calls", "messages"))], json, extra)
        return
    with tempfile.TemporaryDirectory(prefix="dialoom-bench-") as name:
        plan = planned(default_job(Path(name), dialogues), [])
        execute(plan, tracking=False)
        _show("engine", [engine_share(run_folder(plan))], json, extra)


def recover(
    json: Json = None,
    kills: Annotated[int, typer.Option(help="Random kills.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of times and targets.")] = 0,
    dialogues: Annotated[int, typer.Option(help="Dialogues of the job.")] = 120,
    target: Annotated[list[str], typer.Option(help="What is killed: driver, worker, engine, node, all.")] = [],  # noqa: B006
) -> None:
    """Kill a job at random, again and again; nothing may be lost and nothing may be there twice."""
    from dialoom.bench import recover as bench

    faults = bench.FAULTS if not target else ""
    result = bench.recover(kills=kills, seed=seed, dialogues=dialogues, targets=target or bench.TARGETS, faults=faults)
    _show("recover", [result], json)
    raise typer.Exit(1 if result.lost or result.twice or result.different else 0)


def scale(
    json: Json = None,
    size: Annotated[list[int], typer.Option(help="Numbers of dialogues.")] = [],  # noqa: B006
) -> None:
    """Driver memory and processor time for more and more dialogues."""
    from dialoom.bench import scale as bench

    _show("scale", bench.scale(size or (1_000, 10_000, 100_000)), json)


def policies(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished run, of any engine.", show_default=False)],
    json: Json = None,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of the simulated engine.")] = 4,
    in_flight: Annotated[int, typer.Option(min=1, help="Calls in flight in each.")] = 64,
    cache_tokens: Annotated[int, typer.Option(min=16, help="Prompt tokens that one replica's cache holds.")] = 50_000,
    window: Annotated[
        int | None, typer.Option(min=1, help="Dialogues that are put in order at once; as a run does without.")
    ] = None,
) -> None:
    """What each scheduling policy is worth: a run's calls in a simulated engine."""
    from dialoom.bench import policies as bench
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out, table

    setup = bench.Setup(replicas, in_flight, cache_tokens)
    ordered = {} if window is None else {"window": window}
    found = bench.policies(existing_run(run, "calls", "messages", "dialogues"), setup, **ordered)
    figures = ("time", "cached", "slots busy")
    title = f"policies, {replicas} x {in_flight} calls, caches of {cache_tokens:,} tokens"
    rows = table(title, "policy", *figures, right=figures)
    for r in found:
        rows.add_row(r.policy, f"{r.time:.3f}", f"{100 * r.cached_share:.1f} %", f"{100 * r.slots_busy:.1f} %")
    out.print(rows)
    _write(title, [asdict(r) for r in found], json)
