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
