"""``dialoom compare``: runs, methods and sweep cells side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dialoom.cli.study import TRACES, Definitions, Form, show

if TYPE_CHECKING:
    from dialoom.compare import Comparison, Contrast
    from dialoom.overview import Overview
    from dialoom.tabular import Table

FEW = 4
"""Up to so many systems stand side by side as columns; more stand below each other."""


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("compare")(compare)


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs; the first is the baseline.")],
    definition: Definitions = [],  # noqa: B006 - typer reads it once
    form: Form = "table",
    sort: Annotated[
        str | None, typer.Option(help="Metric to sort by, or cost, tokens, latency, calls.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the Pareto front into a .png, .svg, .html or .json file.")
    ] = None,
    plot_metric: Annotated[str | None, typer.Option(help="Score of the plot; joint goal accuracy by default.")] = None,
    reported: Annotated[
        list[Path], typer.Option(help="File with reported results of your own; several may be given.")
    ] = [],  # noqa: B006
    flips: Annotated[int, typer.Option(help="Dialogues that changed sides shown at most.")] = 20,
) -> None:
    """Compare runs, or the methods and cells of one: intervals, paired tests, cost, Pareto front, reported results."""
    from dialoom.cli.results import existing_run
    from dialoom.cli.terminal import err, out
    from dialoom.compare import compare_runs
    from dialoom.errors import JobError
    from dialoom.overview import check_metric, overview
    from dialoom.plot import check_plot, save_plot
    from dialoom.reported import beside, load_reported

    if plot is not None:
        check_plot(plot)
    known = load_reported(reported)
    folders = [existing_run(r, *TRACES) for r in runs]
    also = [name for name in (sort, plot_metric) if name]
    for name in also:
        check_metric(name, definition)
    found = compare_runs([f.path for f in folders], definitions=list(definition) or None, also=also, alone=True)
    ranked = overview(found.systems, sort)
    papers = beside(ranked.systems, known)
    if len(found.systems) < 2 and not papers:
        hint = "Name two runs, or one run with several methods or cells; no reported result is of this data either."
        raise JobError("nothing to compare", hint=hint)
    record = {**found.to_dict(), "overview": ranked.records(), "sorted_by": ranked.metric}
    record["reported"] = [p.records() for p in papers]
    found = found.only(s.label for s in ranked.systems)
    few = len(found.systems) <= FEW
    if plot is not None:
        save_plot(plot, ranked.systems, plot_metric or ranked.lead)
        err.print(f"plot written to {plot}", soft_wrap=True, style="dim")
    top = fitted(ranked, out.width) if form == "table" else ranked.table()
    tables = [top, *(_few(found, form, flips) if few else _many(found, form, ranked.lead))]
    show([*tables, *(p.table() for p in papers)], record, form)


def fitted(ranked: Overview, width: int) -> Table:
    """The overview as it fits so many characters: fewer figures, then without the settings where cells have names."""
    from dialoom.overview import identities

    every = len(ranked.shown)
    named = "cell" in identities(ranked.systems, ranked.fields)
    least = min(4 if named else 1, every)
    tries = [(n, True) for n in range(every, least - 1, -1)]
    tries += [(n, False) for n in range(every, 0, -1)] if named else []
    most, fields = next((t for t in tries if table_width(ranked.table(t[0], fields=t[1])) <= width), tries[-1])
    made = ranked.table(most, fields=fields)
    hidden = [*ranked.shown[most:], *(() if fields else ranked.fields)]
    note = f"No room for {', '.join(hidden)}: a wider terminal or --as markdown shows them." if hidden else ""
    return replace(made, notes=(*made.notes, note)) if note else made


def table_width(made: Table) -> int:
    """How many characters wide a table stands on the terminal."""
    from rich.cells import cell_len

    from dialoom.tabular import shown

    total = 0
    for i, column in enumerate(made.columns):
        total += 2 + max(cell_len(column.name), *(cell_len(shown(row[i], column.kind)) for row in made.rows))
    return total


def _few(found: Comparison, form: str, flips: int) -> list[Table]:
    flipped = found.flips_table()
    shown = replace(flipped, rows=flipped.rows[:flips], title=f"{flipped.title} ({len(flipped.rows)} in all)")
    middle = differences(found.contrasts) if form == "table" else found.table()
    return [found.wide(), middle, found.settings_table(), shown]


def _many(found: Comparison, form: str, metric: str) -> list[Table]:
    """What differs in the metric sorted by, and how many dialogues changed sides; JSON has all the rest."""
    names = dict.fromkeys(c.definition for c in found.contrasts)
    chosen = metric.partition("/")[0]
    lead = chosen if chosen in names else next(iter(names), "")
    narrow = found.only((s.label for s in found.systems), [lead])
    title = f"Differences from {found.systems[0].label} in {lead}"
    made = differences(narrow.contrasts) if form == "table" else narrow.table()
    more = f"{len(names) - 1} more definitions: -d NAME, or --as json." if len(names) > 1 else ""
    notes = (*made.notes, *(found.notes if form == "table" else ()), more)
    return [replace(made, title=title, notes=tuple(n for n in notes if n)), found.flip_counts()]


def differences(contrasts: Sequence[Contrast]) -> Table:
    """What differs from the baseline, narrow enough for a terminal; comparisons without any difference are counted."""
    from dialoom.tabular import Column, Table

    pairs = [(c, c.paired) for c in contrasts if c.paired is not None]
    rows = []
    for contrast, paired in pairs:
        if paired.difference:
            scale, sign = (100.0, " %") if contrast.unit == "fraction" else (1.0, "")
            ends = paired.interval
            span = "" if ends is None else f"{scale * ends.low:+.2f}\u00a0–\u00a0{scale * ends.high:+.2f}"
            difference = f"{scale * paired.difference:+.2f}{sign}{contrast.mark}"
            row = (
                contrast.definition,
                contrast.system,
                difference,
                span,
                contrast.p_adjusted,
                paired.effect_size,
                paired.n,
            )
            rows.append(row)
    columns = (
        Column("definition"), Column("system"), Column("difference"), Column("95 % interval"),
        Column("p (Holm)", "p_value"), Column("effect", "number"), Column("dialogues", "count"),
    )  # fmt: skip
    same = f"{len(pairs) - len(rows)} comparisons show no difference." if len(pairs) > len(rows) else ""
    return Table("Differences from the baseline", columns, tuple(rows), (same,) if same else ())
