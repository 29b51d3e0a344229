"""``dialoom schema`` and ``dialoom doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    schema = typer.Typer(help="Look at domain schemas.", no_args_is_help=True)
    schema.command("check")(schema_check)
    schema.command("show")(schema_show)
    app.add_typer(schema, name="schema")
    app.command("doctor")(doctor)


SchemaFile = Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema file (JSON or YAML).", show_default=False)]


def schema_check(
    schema: SchemaFile,
    reader: Annotated[str | None, typer.Option(help="Reader of --data.")] = None,
    data: Annotated[
        list[Path], typer.Option(help="Labelled dialogues: list the gold values that the validator puts out of reach.")
    ] = [],  # noqa: B006 - typer reads it once
    most: Annotated[int, typer.Option(min=1, help="Rows shown at most.")] = 60,
) -> None:
    """Say before a run what in a schema will hurt; exit status 1 where something surely will."""
    from dialoom.cli.terminal import out, safe, table
    from dialoom.errors import JobError
    from dialoom.schema_check import check_schema
    from dialoom.schema_files import load_schema

    if data and reader is None:
        raise JobError("--data needs --reader", hint="For example --reader sgd.")
    loaded = load_schema(schema)
    findings = check_schema(loaded)
    rows = table(
        f"{len(findings)} findings in {len(loaded.services)} services", "level", "service", "slot", "what", "do"
    )
    colours = {"error": "red", "warning": "yellow", "note": "dim"}
    for f in findings[:most]:
        rows.add_row(
            safe(f.level, style=colours.get(f.level, "")),
            safe(f.service),
            safe(f.slot),
            safe(f.what),
            safe(f.hint, style="dim"),
        )
    out.print(rows)
    if len(findings) > most:
        out.print(f"(+{len(findings) - most} more; --most shows them)")
    if data and reader is not None:
        _out_of_reach(loaded, reader, data, most)
    raise typer.Exit(1 if any(f.level == "error" for f in findings) else 0)


def _out_of_reach(schema: object, reader: str, data: list[Path], most: int) -> None:
    from collections import Counter

    from dialoom.cli.terminal import out, safe, table
    from dialoom.dialogue import Dialogue
    from dialoom.reach import unreachable
    from dialoom.reader import open_dialogues
    from dialoom.schema import Schema

    assert isinstance(schema, Schema)
    dialogues = (d for d in open_dialogues(reader, data, {}) if isinstance(d, Dialogue))
    found = list(unreachable(dialogues, schema))
    rules = Counter(u.rule for u in found)
    counts = ", ".join(f"{rule} {n}" for rule, n in rules.most_common())
    rows = table(
        f"{len(found)} gold values out of reach ({counts})", "dialogue", "turn", "service", "slot", "value", "rule"
    )
    for u in found[:most]:
        rows.add_row(safe(u.dialogue_id), str(u.turn), safe(u.service), safe(u.slot), safe(u.value, 60), u.rule)
    out.print(rows)
    if len(found) > most:
        out.print(f"(+{len(found) - most} more; --most shows them)")


def schema_show(schema: SchemaFile) -> None:
    """List the services of a schema with their intents and slots."""
    from dialoom.cli.terminal import out, safe, table
    from dialoom.schema_files import load_schema

    loaded = load_schema(schema)
    for service in loaded.services.values():
        rows = table(f"{service.name}", "slot", "type", "values", "description")
        for slot in service.slots:
            kind = "categorical" if slot.is_categorical else slot.type.value
            rows.add_row(safe(slot.name), kind, safe(", ".join(slot.values), 60), safe(slot.description, 80))
        out.print(rows)
        out.print(safe("intents: " + ", ".join(i.name for i in service.intents), style="dim"), "")


def doctor(
    prepare: Annotated[bool, typer.Option(help="Prepare the default model where it is missing.")] = False,
) -> None:
    """Check Python, packages, Ray, vLLM, the default model, the tracking server, disk and memory."""
    from dialoom.cli.terminal import out, safe, table
    from dialoom.doctor import checks

    marks = {"ok": "green", "warn": "yellow", "fail": "red"}
    rows = table("dialoom doctor", "", "what", "found", "what to do")
    failed = False
    for check in checks(prepare=prepare):
        failed = failed or check.status == "fail"
        rows.add_row(
            safe(check.status, style=marks.get(check.status, "")),
            safe(check.name),
            safe(check.found),
            safe(check.hint, style="dim"),
        )
    out.print(rows)
    raise typer.Exit(1 if failed else 0)
