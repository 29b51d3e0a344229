"""What a person reads after a run: outcomes, headline scores, cost, and where everything lies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from dialoom.cli.results import outcome_style
from dialoom.cli.terminal import count, duration, err, out, safe, show_error, table
from dialoom.tabular import Cell, Table, shown

if TYPE_CHECKING:
    from dialoom.estimate import Estimate, Range
    from dialoom.run import RunResult
    from dialoom.runtime.folder import RunFolder
    from dialoom.runtime.plan import Plan
    from dialoom.scoring import GroupScores, Score, ScoreReport


LEAST_USD = 0.00005
"""Less is not shown."""


def show_result(result: RunResult) -> None:
    """Outcomes, headline scores, tokens, folder, tracking, and what is left to do."""
    out.print()
    if result.scores is not None:
        from dialoom.scoring import ScoreReport

        report = ScoreReport.from_dict(dict(result.scores))
        if len(report.groups) > 2:
            show_cells(report)
        else:
            show_scores(report, only=HEADLINES)
    _outcomes(result)
    c = result.progress.counts
    line = Text.assemble(("this session  ", "dim"), f"{duration(result.seconds)} min, {count(c['calls'])} calls sent")
    if c["replayed"]:
        line.append(f", {count(c['replayed'])} from the call log")
    cached = c["cached_tokens"] / c["prompt_tokens"] if c["prompt_tokens"] else 0.0
    line.append(f", {count(c['prompt_tokens'])} tokens in ({cached:.0%} cached), {count(c['output_tokens'])} out")
    out.print(line, soft_wrap=True)
    show_paid(result.folder)
    out.print(Text.assemble(("run folder    ", "dim"), str(result.folder)), soft_wrap=True)
    if result.tracking:
        _tracking(result.tracking)
    out.print(Text.assemble(("look inside   ", "dim"), f"dialoom show {result.folder}"), soft_wrap=True)
    for note in result.notes:
        err.print(Text.assemble(("note: ", "yellow"), note), soft_wrap=True)
    if result.error is not None:
        show_error(result.error)
    if not result.complete:
        err.print(Text("Some units are owed: run the same command again to go on.", style="yellow"))


def show_paid(folder: RunFolder) -> None:
    """What all sessions of the run paid; nothing where its engines have no price, or it has no traces yet."""
    from dialoom.costs import run_paid
    from dialoom.errors import StorageError

    try:
        for table in ("dialogues", "calls"):  # another machine may have written them
            folder.fetch(f"traces/{table}.parquet")
        paid = run_paid(folder)
    except StorageError:
        return
    if paid is None:
        return
    line = Text.assemble(("paid          ", "dim"), f"{dollars(paid.total_usd)} by all sessions")
    if paid.gpu_usd:
        line.append(f", {dollars(paid.gpu_usd)} of it for GPUs")
    if paid.rowless_usd >= LEAST_USD:
        line.append(f", {dollars(paid.rowless_usd)} for calls that no row holds as paid")
    out.print(line, soft_wrap=True)


def dollars(usd: float) -> str:
    """An amount as it is shown."""
    return f"${usd:,.4f}" if usd < 1 else f"${usd:,.2f}"


def _outcomes(result: RunResult) -> None:
    line = Text.assemble(("units         ", "dim"))
    for i, (name, n) in enumerate(sorted(result.outcomes.items(), key=lambda item: -item[1])):
        line.append(", " if i else "").append(f"{n:,} ").append(name, style=outcome_style(name))
    if result.progress.skipped:
        line.append(f"  ({result.progress.skipped:,} of them done before)", style="dim")
    out.print(line)


def _tracking(uri: str) -> None:
    from dialoom.tracking.tracker import shown_uri

    local = uri.startswith("sqlite:")
    how = f"mlflow ui --backend-store-uri {shown_uri(uri)}" if local else shown_uri(uri)
    out.print(Text.assemble(("MLflow        ", "dim"), how), soft_wrap=True)


def show_estimate(found: Estimate) -> None:
    """What a job will need, with ranges."""
    size = found.size
    sampled = f"{found.sampled:,} of {found.sampled_dialogues:,} dialogues sampled"
    title = f"{size.dialogues:,} dialogues, {size.user_turns:,} user turns, {found.units:,} units ({sampled})"
    rows = table(title, "", "estimate", "90 % range", right=("estimate", "90 % range"))
    for name, r, form in _estimate_lines(found):
        rows.add_row(name, form(r.value), f"{form(r.low)}\u00a0–\u00a0{form(r.high)}")
    out.print(rows)
    if found.paid.calls != found.calls:
        out.print("Equal calls are paid once; attributed, each cell bears all of its own.", style="dim")
    if found.cost_usd is not None:
        out.print("Hold the run to a budget: dialoom run JOB --max-cost USD", style="dim")
    for note in found.notes:
        out.print(safe(note, 500, "dim"), soft_wrap=True)
    if size.bad_records:
        out.print(f"{size.bad_records} records cannot be read", style="yellow")


def _estimate_lines(found: Estimate) -> Iterator[tuple[str, Range, Callable[[float], str]]]:
    """Name, figure and form of every line: what is paid, and what is attributed where that is another figure."""
    forms: dict[str, tuple[str, Callable[[float], str]]] = {
        "calls": ("calls", count),
        "prompt_tokens": ("prompt tokens", count),
        "cached_tokens": ("of these cached", count),
        "output_tokens": ("output tokens", count),
        "cost_usd": ("cost", dollars),
    }
    differs = any(getattr(found.paid, name) != getattr(found, name) for name in forms)
    for kind, amounts in (("paid", found.paid), ("attributed", found))[: 1 + differs]:
        for name, (label, form) in forms.items():
            if (amount := getattr(amounts, name)) is not None:
                yield f"{label}, {kind}" if differs else label, amount, form
    yield "time", found.seconds, lambda s: duration(s) if s == s else "–"


def show_plan(plan: Plan) -> None:
    """What a job would run."""
    rows = table(f"{plan.name}  {plan.digest[:12]}", "what", "value")
    for v in plan.variants:
        roles = ", ".join(f"{r}={e}" for r, e in v.roles.items())
        cell = f"{v.cell}: " if v.cell else ""
        rows.add_row("cell" if cell else "method", safe(f"{cell}{v.method} ({v.use}; {roles})"))
    for name, e in plan.engines.items():
        where = "own actor" if e.hosted else "in the workers"
        rows.add_row(
            "engine", safe(f"{name}: {e.use} {e.identity.model}, {e.replicas} × {e.in_flight} calls in flight, {where}")
        )
    rows.add_row("schema", safe(f"{plan.schema.name}: {len(plan.schema.services)} services"))
    data = plan.options.data
    rows.add_row("data", safe(f"{data.reader}: {', '.join(data.paths)}"))
    rows.add_row("workers", f"{plan.workers}, {plan.units_per_worker} units at once in each")
    out.print(rows)
    for note in plan.notes:
        err.print(Text.assemble(("note: ", "yellow"), safe(note, 500)), soft_wrap=True)
    out.print("The job is valid; nothing was started.", style="green")


HEADLINES = (
    "joint_goal",
    "sgd_fuzzy",
    "sgd_average_service",
    "slot_f1",
    "delta",
    "intent_accuracy",
    "validator",
    "effort",
)
"""Definitions shown after a run; ``dialoom score RUN`` shows all that were computed."""


def show_scores(report: ScoreReport, *, only: Collection[str] = ()) -> None:
    """The headline of every definition (or of those in ``only``) with its interval; coverage stands in the title."""
    for group in report.groups:
        cover = group.coverage
        title = f"{group.label}: {cover.dialogues_scored:,} of {cover.dialogues_total:,} dialogues scored"
        rows = table(
            title, "definition", "measure", "value", "95 % interval", "n", right=("value", "95 % interval", "n")
        )
        left_out = 0
        for definition in group.definitions.values():
            name, score = definition.headline
            if only and definition.name not in only:
                left_out += 1
                continue
            ends = score.interval
            low, high = (figure(e, score.unit) for e in ((ends.low, ends.high) if ends else (None, None)))
            interval = f"{low}\u00a0–\u00a0{high}" if ends else ""
            value = figure(score.overall.value, score.unit)
            rows.add_row(safe(definition.name), safe(name, style="dim"), value, interval, f"{score.overall.n:,}")
        out.print(rows)
        if left_out:
            out.print(f"(+{left_out} more definitions: dialoom score)", style="dim")
    for note in report.notes:
        out.print(safe(note, 500, "dim"), soft_wrap=True)
    out.print()


def show_cells(report: ScoreReport) -> None:
    """One row a method and cell, one column a headline that any of them has, as many as fit the terminal."""
    names = [n for n in HEADLINES if any(_headline(g, n) is not None for g in report.groups)]
    room = out.width - max(len(g.label) for g in report.groups) - len("scored") - 8
    kept = [n for i, n in enumerate(names) if sum(max(len(k), 8) + 2 for k in names[: i + 1]) <= room] or names[:1]
    rows = table(f"{len(report.groups)} methods and cells", "", *kept, "scored", right=("", *kept, "scored"))
    rows.columns[0].justify = "left"
    for group in report.groups:
        found = (_headline(group, n) for n in kept)
        shown = ("–" if s is None else figure(s.overall.value, s.unit) for s in found)
        rows.add_row(
            safe(group.label), *shown, f"{group.coverage.dialogues_scored:,}/{group.coverage.dialogues_total:,}"
        )
    out.print(rows)
    more = f"Not shown for want of room: {', '.join(names[len(kept) :])}. " if len(kept) < len(names) else ""
    out.print(f"{more}Sorted, with cost, intervals and paired tests: dialoom compare RUN.\n", style="dim")


def _headline(group: GroupScores, name: str) -> Score | None:
    found = group.definitions.get(name)
    return None if found is None or found.headline[1].overall.value is None else found.headline[1]


def figure(value: float | None, unit: str) -> str:
    """A figure in the form people read: fractions in percent, others with four digits, nothing as a dash."""
    if value is None:
        return "–"
    return f"{100 * value:.2f} %" if unit == "fraction" else f"{value:.4g}"


def show_table(data: Table) -> None:
    """A table of the library on the terminal: figures to the right, notes below."""
    figures = tuple(c.name for c in data.columns if c.kind != "text")
    rows = table(data.title, *(c.name for c in data.columns), right=figures)
    for row in data.rows:
        rows.add_row(*(_cell(cell, c.kind) for cell, c in zip(row, data.columns, strict=True)))
    out.print(rows)
    for note in data.notes:
        out.print(safe(note, 500, "dim"), soft_wrap=True)
    out.print()


def _cell(cell: Cell, kind: str) -> Text:
    return Text("–", style="dim") if cell is None else safe(shown(cell, kind), 80)
