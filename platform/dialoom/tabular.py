"""Tables as data: whoever shows one (terminal, Markdown, LaTeX) decides how it looks."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """``kind`` is ``text``, ``count``, ``share`` (a fraction in [0, 1]), ``number`` or ``p_value``."""

    name: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns, and notes that belong below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: f"\\{c}" for c in "&%$#_{}"}


def markdown(table: Table) -> str:
    """The table in Markdown: title, rows with figures to the right, notes."""
    lines = [f"**{table.title}**", ""] if table.title else []
    cells = [
        [shown(c, col.kind).replace("|", r"\|") for c, col in zip(r, table.columns, strict=True)] for r in table.rows
    ]
    lines.append(_row([c.name for c in table.columns]))
    lines.append(_row(["---" if c.kind == "text" else "---:" for c in table.columns]))
    lines += [_row(row) for row in cells]
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def latex(table: Table) -> str:
    """The table in LaTeX (needs the package ``booktabs``): a ``table`` with caption and notes."""
    align = "".join("l" if c.kind == "text" else "r" for c in table.columns)
    rows = [[_escaped(shown(c, col.kind)) for c, col in zip(r, table.columns, strict=True)] for r in table.rows]
    body = [f"{' & '.join(row)} \\\\" for row in rows]
    head = f"{' & '.join(_escaped(c.name) for c in table.columns)} \\\\"
    notes = [rf"\par\smallskip\footnotesize {_escaped(note)}" for note in table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(table.title)}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text).replace("–", "--")


def shown(cell: Cell, kind: str) -> str:
    """One cell as plain text: shares in percent with two decimals, "–" for null."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if kind == "share":
        return f"{100 * cell:.2f}"
    if kind == "count" or isinstance(cell, int):
        return f"{cell:,}".replace(".0", "") if isinstance(cell, int) else f"{cell:,.0f}"
    if kind == "p_value":
        return "< 0.001" if cell < 0.001 else f"{cell:.3f}"
    return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
