"""``dialoom score`` and ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dialoom.runtime.folder import RunFolder

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("score")(score)
    app.command("show")(show)


def existing_run(place: str, *tables: str) -> RunFolder:
    """The run folder at a path or URL, with these tables at hand. Raises JobError where there is none."""
    from dialoom.errors import JobError
    from dialoom.registry import did_you_mean
    from dialoom.runtime.folder import open_folder

    folder = open_folder(place)
    if folder.read("run.json") is None:
        near = Path(place).parent
        runs = sorted(str(p.parent) for p in near.glob("*/run.json")) if near.is_dir() else []
        raise JobError("there is no run here", where=place, hint=did_you_mean(place, runs))
    for name in ("run.json", *(f"traces/{t}.parquet" for t in tables)):
        folder.fetch(name)
    return folder


def score(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run folder.", show_default=False)] = None,
    definition: Annotated[
        list[str], typer.Option("--definition", "-d", help="Metric definition; several may be given.")
    ] = [],  # noqa: B006
    predictions: Annotated[Path | None, typer.Option(help="Predictions made elsewhere, instead of a run.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold that belongs to --predictions.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema of the evaluated split.")] = None,
    seen: Annotated[Path | None, typer.Option(help="Schema of the training split: its services count as seen.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="Format of --predictions; found by itself.")] = None,
    partial: Annotated[bool, typer.Option(help="Predicted dialogues may end early; the rest is not scored.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
) -> None:
    """Score a run from its traces alone, or predictions made elsewhere."""
    import orjson

    from dialoom.cli.summary import show_scores
    from dialoom.errors import JobError
    from dialoom.schema_files import load_schema
    from dialoom.scoring import definition as find_definition
    from dialoom.scoring import score_predictions, score_run

    for name in definition:
        find_definition(name)
    names = list(definition) or None
    if (run is None) == (predictions is None):
        raise JobError("score takes either a RUN or --predictions", hint="For example: dialoom score runs/quickstart.")
    if run is not None:
        folder = existing_run(run, "dialogues", "turns", "calls", "messages")
        report = score_run(folder.path, definitions=names)
        folder.put_json("scores.json", report.to_dict())
    else:
        assert predictions is not None
        services = None if seen is None else list(load_schema(seen).services)
        report = score_predictions(
            predictions, gold, schema, format=format_, definitions=names, seen_services=services, partial=partial
        )
    if json is not None:
        json.write_bytes(orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2) + b"\n")
    show_scores(report)


def show(
    run: RunArgument,
    dialogue: Annotated[
        str | None, typer.Argument(metavar="[DIALOGUE]", help="Dialogue id.", show_default=False)
    ] = None,
    prompts: Annotated[bool, typer.Option(help="Show the prompts too.")] = False,
    outcome: Annotated[str | None, typer.Option(help="List only dialogues with this outcome.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Rows listed at most.")] = 40,
) -> None:
    """Look at a run: its dialogues, or one dialogue turn by turn."""
    folder = existing_run(run, "dialogues", "turns", "calls", "messages")
    if dialogue is None:
        from dialoom.cli.summary import show_paid

        _list(folder.path, outcome, most)
        show_paid(folder)
        return
    from dialoom.cli.dialogue_view import show_dialogue

    show_dialogue(folder.path, dialogue, prompts=prompts)


def _list(run: Path, outcome: str | None, most: int) -> None:
    import pyarrow.dataset as ds

    from dialoom.cli.terminal import count, out, safe, table
    from dialoom.errors import JobError
    from dialoom.outcome import Outcome
    from dialoom.registry import did_you_mean
    from dialoom.traces.read import read_table

    if outcome is not None and outcome not in list(Outcome):
        hint = did_you_mean(outcome, [o.value for o in Outcome])
        raise JobError(f"--outcome {outcome}: there is no such outcome", hint=hint)
    columns = ["dialogue_id", "method", "cell", "trial", "outcome", "n_user_turns", "n_calls", "output_tokens", "error"]
    where = None if outcome is None else ds.field("outcome") == outcome
    found = read_table(run, "dialogues", columns, where)
    rows = table(
        f"{found.num_rows} units in {run}",
        "dialogue", "method", "outcome", "turns", "calls", "tokens out", "error",
        right=("turns", "calls", "tokens out"),
    )  # fmt: skip
    for r in found.slice(0, most).to_pylist():
        name = r["method"] + (f"[{r['cell']}]" if r["cell"] else "") + (f"#{r['trial']}" if r["trial"] else "")
        rows.add_row(
            safe(r["dialogue_id"], 48), safe(name), safe(r["outcome"], style=outcome_style(r["outcome"])),
            str(r["n_user_turns"] or 0), str(r["n_calls"] or 0), count(r["output_tokens"] or 0),
            safe(r["error"] or "", 90, "dim"),
        )  # fmt: skip
    out.print(rows)
    if found.num_rows > most:
        out.print(f"(+{found.num_rows - most} more; --most shows them)", style="dim")


def outcome_style(outcome: str) -> str:
    """Colour of an outcome."""
    good = {"accepted": "green", "corrected": "cyan"}
    bad = {"infrastructure": "red", "bad_input": "red", "interrupted": "magenta", "job_limit": "magenta"}
    return good.get(outcome) or bad.get(outcome) or "yellow"
