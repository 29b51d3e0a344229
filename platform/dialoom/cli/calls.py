"""``dialoom calls``: the call log of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    calls = typer.Typer(help="The call log of a run: what it holds and saves.", no_args_is_help=True)
    calls.command("stats")(stats)
    calls.command("list")(list_)
    calls.command("export")(export)
    calls.command("prune")(prune)
    calls.command("bound")(bound)
    app.add_typer(calls, name="calls")


def stats(run: RunArgument) -> None:
    """Records, size, hit rate and saved tokens."""
    from dialoom.calls import figures
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import count, out, table

    found = figures(existing_run(run, "calls"))
    rows = table(f"call log of {run}", "what", "value", right=("value",))
    rows.add_row("segments", str(found.segments))
    rows.add_row("recorded answers", f"{found.records:,}")
    rows.add_row("of these in no trace", f"{found.unused:,}")
    rows.add_row("size", f"{count(found.bytes)}B")
    rows.add_row("calls of the run", f"{found.calls:,}")
    rows.add_row("answered from a log", f"{found.replayed:,} ({found.hit_rate:.1%})")
    rows.add_row("prompt tokens saved", count(found.saved_prompt_tokens))
    rows.add_row("output tokens saved", count(found.saved_output_tokens))
    out.print(rows)


def list_(
    run: RunArgument,
    dialogue: Annotated[str | None, typer.Option(help="Only this dialogue's calls.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Rows listed at most.")] = 40,
) -> None:
    """List calls: where they belong, what they cost, how they ended."""
    import pyarrow.dataset as ds

    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out, safe, table
    from dialoom.traces.read import read_table

    folder = existing_run(run, "calls")
    where = None if dialogue is None else ds.field("dialogue_id") == dialogue
    found = read_table(folder.path, "calls", where=where)
    rows = table(
        f"{found.num_rows} calls",
        "dialogue",
        "turn",
        "call",
        "step",
        "digest",
        "in",
        "out",
        "s",
        "answer",
        right=("in", "out", "s"),
    )
    for r in found.slice(0, most).to_pylist():
        took = "log" if r["replayed"] else f"{r['latency_s'] or 0:.2f}"
        rows.add_row(
            safe(r["dialogue_id"], 40), str(r["turn"]), str(r["call"]), safe(r["step"] or ""), r["digest"][:10],
            str(r["prompt_tokens"] or 0), str(r["output_tokens"] or 0), took, safe(r["text"] or r["error"] or "", 60),
        )  # fmt: skip
    out.print(rows)
    if found.num_rows > most:
        out.print(f"(+{found.num_rows - most} more; --most shows them)", style="dim")


def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="File to write (JSON lines).")],
    most: Annotated[int | None, typer.Option(help="So many calls at most.")] = None,
) -> None:
    """Write the calls with their prompts as JSON lines."""
    from dialoom.calls import calls_file
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out

    number = calls_file(existing_run(run, "calls", "messages"), to, most)
    out.print(f"{number:,} calls written to {to}", soft_wrap=True)


def prune(run: RunArgument) -> None:
    """Drop recorded answers that no trace of the run refers to."""
    from dialoom import calls
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out

    kept, dropped = calls.prune(existing_run(run, "calls"))
    out.print(f"{kept:,} answers kept, {dropped:,} dropped")


def bound(
    run: RunArgument,
    block: Annotated[int, typer.Option(help="The engine's cache block size in tokens.")] = 16,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Cached prompt tokens against what an unbounded prefix cache would have served."""
    import orjson

    from dialoom.calls import prefix_bound
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import out, table

    found = prefix_bound(existing_run(run, "calls", "messages"), block)
    figures = ("calls", "prompt tokens", "cached", "bound", "cached / bound", "uncached a turn")
    rows = table(f"prefix cache, blocks of {block} tokens", "engine", *figures, right=figures)
    for b in found:
        share = "–" if b.share_of_bound is None else f"{b.share_of_bound:.3f}"
        rows.add_row(
            b.engine, f"{b.calls:,}", f"{b.prompt_tokens:,}", f"{b.cached_tokens:,}", f"{b.bound_tokens:,}", share,
            f"{b.uncached_a_turn:.1f}",
        )  # fmt: skip
    out.print(rows)
    if json is not None:
        json.write_bytes(orjson.dumps([asdict(b) for b in found], option=orjson.OPT_INDENT_2) + b"\n")
