"""``dialoom errors``, ``export``, ``sensitivity`` and ``agree``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dialoom.tabular import Table

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)]
Form = Annotated[str, typer.Option("--as", help="table, markdown, latex or json.")]
Definitions = Annotated[list[str], typer.Option("--definition", "-d", help="Metric definition; several may be given.")]
TRACES = ("dialogues", "turns", "calls")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("errors")(errors)
    app.command("export")(export)
    app.command("sensitivity")(sensitivity)
    app.command("agree")(agree)


def show(tables: Sequence[Table], record: Any, form: str) -> None:
    """Print tables in the form asked for. Raises JobError for an unknown form."""
    import orjson

    from dialoom.cli.summary import show_table
    from dialoom.errors import JobError
    from dialoom.registry import did_you_mean
    from dialoom.tabular import latex, markdown

    if form == "table":
        for table in tables:
            show_table(table)
    elif form in ("markdown", "latex"):
        print("\n".join((markdown if form == "markdown" else latex)(table) for table in tables))
    elif form == "json":
        print(orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())
    else:
        raise JobError(f"--as knows no form '{form}'", hint=did_you_mean(form, ["table", "markdown", "latex", "json"]))


def errors(run: RunArgument, form: Form = "table") -> None:
    """Where the errors are: by slot, by cause, first error turn and how long it lasted, what the validator did."""
    from dialoom.analysis import analyse_run
    from dialoom.cli.results import existing_run

    found = analyse_run(existing_run(run, *TRACES).path)
    show([t for a in found for t in a.tables()], [a.to_dict() for a in found], form)


def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="Folder to write into.")],
    format_: Annotated[str, typer.Option("--format", help="sgd, mwzeval, trade or gt_pr.")],
    method: Annotated[str | None, typer.Option(help="Method, where the run has several.")] = None,
    cell: Annotated[str | None, typer.Option(help="Sweep cell, where the run has several.")] = None,
    trial: Annotated[int, typer.Option(help="Trial.")] = 0,
) -> None:
    """Write a run's predictions in the form that another evaluator reads."""
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out
    from dialoom.export import export_run

    written = export_run(existing_run(run, *TRACES).path, format_, to, method=method, cell=cell, trial=trial)
    out.print(f"{len(written)} files written to {to}", soft_wrap=True)


def sensitivity(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs of the same dialogues, a schema each.")],
    method: Annotated[str | None, typer.Option(help="Method, where the runs have several.")] = None,
    form: Form = "table",
) -> None:
    """Schema sensitivity over runs under several schema variants (SGD-X)."""
    from dialoom.cli.results import existing_run
    from dialoom.sgdx import schema_sensitivity

    found = schema_sensitivity({r: existing_run(r, *TRACES).path for r in runs}, method=method)
    show([found.table()], found.to_dict(), form)


def agree(
    judge: Annotated[Path, typer.Argument(help="Labels of the judge (JSON lines, JSON or CSV).")],
    human: Annotated[Path, typer.Argument(help="Labels of people, for the same items.")],
    form: Form = "table",
) -> None:
    """Agreement of a judge's labels with people's."""
    from dataclasses import asdict

    from dialoom.agreement import agreement, read_labels

    found = agreement(read_labels(judge), read_labels(human))
    show([found.table()], asdict(found), form)
