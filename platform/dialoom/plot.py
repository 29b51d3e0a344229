"""The Pareto front as a picture: a score against attributed cost and against time, side by side.

Needs the extra ``plot`` (altair, vl-convert-python). Labels are untrusted text: they are data of the chart, never
markup or code.
"""

from __future__ import annotations

import html
import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from dialoom.errors import JobError
from dialoom.overview import figure_name, short_names
from dialoom.pareto import Panel, panels
from dialoom.placement import Box, Segment, place, text_width
from dialoom.registry import did_you_mean
from dialoom.systems import System
from dialoom.text import printable

FORMATS = ("png", "svg", "html", "json")
WIDTH, HEIGHT = 400, 340
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
SIZE = 11
LONGEST = 30
"""Longer names stand in a key below, and numbers at the points."""
MOST_NAMED = 16
FRONT, REST, INK, FAINT = "#0b5c8a", "#a3a9af", "#1c2126", "#6d747b"
GAP = 46


def check_plot(path: Path) -> None:
    """Raises JobError where the plot could not be written: an unknown ending, no such folder, missing libraries."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        known = [f".{f}" for f in FORMATS]
        raise JobError(
            f"--plot knows no ending '{path.suffix}'", where=str(path), hint=did_you_mean(path.suffix, known)
        )
    if not path.parent.is_dir():
        raise JobError("there is no such folder", where=str(path.parent), hint="Make it first, or name another file.")
    missing = lacking()
    if missing:
        hint = "Install the extra 'plot': pip install -e '.[plot]', or pip install altair vl-convert-python."
        raise JobError(f"a plot needs {' and '.join(missing)}", hint=hint)


def lacking() -> list[str]:
    """Libraries of the plot that are not installed, by their names on PyPI."""
    return [n for m, n in _LIBRARIES.items() if importlib.util.find_spec(m) is None]


_LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python"}


def save_plot(path: Path, systems: Sequence[System], metric: str) -> None:
    """Draw ``metric`` (any name of a figure) against cost and time into ``path``; its ending says the form.

    Raises JobError where there is nothing to draw, and what :func:`check_plot` raises.
    """
    check_plot(path)
    path.write_bytes(rendered(pareto_chart(systems, metric), path.suffix.lower().removeprefix(".")))


def rendered(chart: Any, form: str) -> bytes:
    """The chart as PNG (200 dpi), SVG, a page of its own that loads nothing, or Vega-Lite JSON."""
    if form == "html":
        return _page(chart).encode()
    if form == "json":
        return bytes(chart.to_json(indent=None).encode())
    if form == "svg":
        drawn = StringIO()
        chart.save(drawn, format="svg")
        return drawn.getvalue().encode()
    out = BytesIO()
    chart.save(out, format="png", ppi=200, scale_factor=1)
    return out.getvalue()


def _page(chart: Any) -> str:
    """One file with its script inside. The chart is JSON without a ``<``, so that no label can end the script."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    spec = json.dumps(chart.to_dict()).replace("<", "\\u003c")
    title = html.escape(str(chart.to_dict()["title"]["text"]))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<script type="text/javascript">{script}</script>\n</head>\n<body>\n<div id="plot"></div>\n<script>\n'
        f'vegaEmbed("#plot", {spec}, {{"actions": {{"export": true, "source": false, "editor": false}}}});\n'
        "</script>\n</body>\n</html>\n"
    )


def pareto_chart(systems: Sequence[System], metric: str) -> Any:
    """The chart as an altair object. Raises JobError for an unknown metric, and where no system has what is drawn."""
    import altair as alt

    name = figure_name(metric, systems)
    found = panels(systems, name)
    if not found:
        raise JobError(f"nothing to draw: no system has both {name} and a cost", hint="Is effort traced in these runs?")
    ordered = sorted(systems, key=lambda s: -(_value(s, name) or 0.0))
    names = dict(zip((s.label for s in ordered), short_names(ordered), strict=True))
    scenes = _named(found, names) or _numbered(found, {s.label: i + 1 for i, s in enumerate(ordered)})
    numbered = any(len(n) > LONGEST for n in names.values()) or scenes[0].numbered
    chart = alt.hconcat(*(_panel_chart(s) for s in scenes), spacing=GAP)
    if numbered:
        chart = alt.vconcat(chart, _key(list(names.values()), len(scenes)), spacing=14)
    return _dressed(chart, found[0], name)


def _value(system: System, name: str) -> float | None:
    return system.figures[name].value if name in system.figures else None


def _dressed(chart: Any, panel: Panel, metric: str) -> Any:
    import altair as alt

    score = panel.figures(panel.systems[0])[1]
    level = next((v.interval.level for s in panel.systems for v in panel.figures(s) if v.interval), None)
    scored = {s.coverage.dialogues_scored for s in panel.systems}
    dialogues = f"{min(scored):,}" if len(scored) == 1 else f"{min(scored):,} to {max(scored):,}"
    sure = f"; bars: {100 * level:.0f} % intervals, bootstrap over dialogues" if level else ""
    title = alt.TitleParams(
        text=": ".join(t for t in (_short(metric), printable(score.meaning, 80)) if t),
        subtitle=f"Line: Pareto front{sure}. {len(panel.systems)} systems, {dialogues} dialogues each.",
        anchor="start", fontSize=14, subtitleFontSize=11, subtitleColor=FAINT, offset=12,
    )  # fmt: skip
    return (
        chart.properties(title=title, padding=14, background="white")
        .configure(font=FONT)
        .configure_view(stroke="#c9ced3")
        .configure_axis(
            labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#eef0f2", tickColor="#c9ced3",
            domainColor="#c9ced3", labelColor=INK, titleColor=INK, titlePadding=8,
        )
    )  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """From data to pixels, linear or logarithmic."""

    low: float
    high: float
    pixels: float
    log: bool = False

    def at(self, value: float) -> float:
        """Pixels from ``low``."""
        if self.log:
            return self.pixels * math.log(value / self.low) / math.log(self.high / self.low)
        return self.pixels * (value - self.low) / (self.high - self.low)

    def back(self, pixels: float) -> float:
        """Inverse of :meth:`at`."""
        share = pixels / self.pixels
        return float(
            self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)
        )


def scale_over(values: Sequence[float], pixels: float, *, may_log: bool) -> Scale:
    """A scale with room at both ends; logarithmic where all are positive and the largest is 6 times the smallest."""
    low, high = min(values), max(values)
    if may_log and low > 0 and high / low > 6:
        room = (high / low) ** 0.08
        return Scale(low / room, high * room, pixels, log=True)
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(0.0 if 0 <= low < room else low - room, high + room, pixels)


@dataclass(frozen=True)
class Scene:
    """A panel with its scales and labels placed: everything in data units, percent where the unit is a fraction."""

    panel: Panel
    x: Scale
    y: Scale
    points: list[dict[str, Any]]
    labels: list[dict[str, Any]]
    numbered: bool


def _named(found: Sequence[Panel], names: dict[str, str]) -> list[Scene] | None:
    """Panels with names at the points; None where they are too many, too long or have no room."""
    if len(names) > MOST_NAMED or any(len(n) > LONGEST for n in names.values()):
        return None
    scenes = [_scene(p, [[s.label] for s in p.systems], lambda group: names[group[0]], names) for p in found]
    whole = [s for s in scenes if s is not None]
    return whole if len(whole) == len(scenes) else None


def _numbered(found: Sequence[Panel], numbers: dict[str, int]) -> list[Scene]:
    """Panels with numbers at the points; equal points share a label, and one without room has none."""
    texts = {label: str(n) for label, n in numbers.items()}
    scenes = []
    for panel in found:
        groups: dict[str, list[str]] = {}
        for s in panel.systems:
            groups.setdefault(" ".join(f"{v.value:.6g}" for v in panel.figures(s)), []).append(s.label)
        scene = _scene(panel, list(groups.values()), lambda g: ranges([numbers[n] for n in g]), texts, numbered=True)
        assert scene is not None
        scenes.append(scene)
    return scenes


def ranges(numbers: Sequence[int]) -> str:
    """``1–3, 7`` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs)


def _scene(
    panel: Panel, groups: list[list[str]], text: Any, names: dict[str, str], *, numbered: bool = False
) -> Scene | None:
    points = [_point(panel, s, on, names) for s, on in zip(panel.systems, panel.on_front, strict=True)]
    x = scale_over([p[k] for p in points for k in ("x", "x_low", "x_high")], WIDTH, may_log=True)
    y = scale_over([p[k] for p in points for k in ("y", "y_low", "y_high")], HEIGHT, may_log=False)
    by_label = {p["label"]: p for p in points}
    heads = sorted(groups, key=lambda g: not any(by_label[n]["front"] for n in g))
    pixels = [(x.at(by_label[g[0]]["x"]), HEIGHT - y.at(by_label[g[0]]["y"])) for g in heads]
    texts = [text(g) for g in heads]
    lines = _front_lines(points, x, y) + _bars(points, x, y)
    spots = place(pixels, texts, Box(2, 2, WIDTH - 2, HEIGHT - 2), size=SIZE, avoid=lines)
    if not numbered and any(s is None for s in spots):
        return None
    labels = []
    for group, label, (px, py), spot in zip(heads, texts, pixels, spots, strict=True):
        if spot is not None:
            end = {"left": spot.box.left - 1, "right": spot.box.right + 1, "center": spot.x}[spot.align]
            side = spot.y if spot.align != "center" else spot.box.bottom if spot.y < py else spot.box.top
            labels.append({
                "text": label, "front": any(by_label[n]["front"] for n in group), "align": spot.align,
                "x": x.back(spot.x), "y": y.back(HEIGHT - spot.y), "leader": spot.leader,
                "from_x": x.back(px), "from_y": y.back(HEIGHT - py),
                "to_x": x.back(end), "to_y": y.back(HEIGHT - side),
            })  # fmt: skip
    return Scene(panel, x, y, points, labels, numbered)


def _point(panel: Panel, system: System, on_front: bool, names: dict[str, str]) -> dict[str, Any]:
    cost, score = panel.figures(system)
    assert cost.value is not None
    assert score.value is not None
    scale = 100.0 if score.unit == "fraction" else 1.0
    x_ends = (cost.interval.low, cost.interval.high) if cost.interval else (cost.value, cost.value)
    y_ends = (score.interval.low, score.interval.high) if score.interval else (score.value, score.value)
    return {
        "label": system.label,
        "name": names[system.label],
        "x": cost.value,
        "x_low": x_ends[0],
        "x_high": x_ends[1],
        "y": scale * score.value,
        "y_low": scale * y_ends[0],
        "y_high": scale * y_ends[1],
        "front": on_front,
    }


def _front_lines(points: Sequence[dict[str, Any]], x: Scale, y: Scale) -> list[Segment]:
    """The front's steps in pixels."""
    on = sorted((x.at(p["x"]), HEIGHT - y.at(p["y"])) for p in points if p["front"])
    pairs = list(pairwise(on))
    return [(a[0], a[1], b[0], a[1]) for a, b in pairs] + [(b[0], a[1], b[0], b[1]) for a, b in pairs]


def _bars(points: Sequence[dict[str, Any]], x: Scale, y: Scale) -> list[Segment]:
    found: list[Segment] = []
    for p in points:
        px, py = x.at(p["x"]), HEIGHT - y.at(p["y"])
        found.append((px, HEIGHT - y.at(p["y_low"]), px, HEIGHT - y.at(p["y_high"])))
        found.append((x.at(p["x_low"]), py, x.at(p["x_high"]), py))
    return found


def _panel_chart(scene: Scene) -> Any:
    """Bars, front, points, ties and labels of one panel, in layers."""
    import altair as alt

    axes = _axes(scene)
    base = alt.Chart(alt.Data(values=sorted(scene.points, key=lambda p: bool(p["front"]))))
    colour = alt.condition("datum.front", alt.value(FRONT), alt.value(REST))
    bars = base.mark_rule(strokeWidth=1, opacity=0.55)
    line = base.transform_filter("datum.front").mark_line(interpolate="step-after", strokeWidth=1.6, color=FRONT)
    dots = base.mark_point(filled=True, size=62, opacity=1, stroke="white", strokeWidth=0.8)
    hover = [
        alt.Tooltip("label:N", title="system"),
        alt.Tooltip("x:Q", title=scene.panel.cost, format=",.4~g"),
        alt.Tooltip("y:Q", title=axes.y_title, format=".2f"),
    ]
    layers = [
        bars.encode(x=axes.x("x_low"), y=axes.y("y"), x2="x_high:Q", color=colour),
        bars.encode(x=axes.x("x"), y=axes.y("y_low"), y2="y_high:Q", color=colour),
        line.encode(x=axes.x("x"), y=axes.y("y"), order="x:Q"),
        dots.encode(x=axes.x("x"), y=axes.y("y"), color=colour, tooltip=hover),
    ]
    return alt.layer(*layers, *_label_layers(scene, axes)).properties(width=WIDTH, height=HEIGHT)


@dataclass(frozen=True)
class _Axes:
    """The two axes of a panel, the same for every layer whatever column it draws."""

    scene: Scene
    y_title: str

    def x(self, column: str) -> Any:
        import altair as alt

        s = self.scene.x
        scale = alt.Scale(domain=[s.low, s.high], type="log" if s.log else "linear", nice=False, zero=False)
        axis = alt.Axis(tickCount=5, format=_form(s), labelOverlap=True, labelFlush=False, grid=not s.log)
        return alt.X(f"{column}:Q", scale=scale, axis=axis, title=self.scene.panel.title)

    def y(self, column: str) -> Any:
        import altair as alt

        s = self.scene.y
        scale = alt.Scale(domain=[s.low, s.high], nice=False, zero=False)
        return alt.Y(f"{column}:Q", scale=scale, axis=alt.Axis(tickCount=6, format=_form(s)), title=self.y_title)


def _axes(scene: Scene) -> _Axes:
    panel = scene.panel
    unit = panel.figures(panel.systems[0])[1].unit
    short = _short(panel.metric)
    return _Axes(scene, f"{short} (%)" if unit == "fraction" else f"{short} ({unit})")


def _short(metric: str) -> str:
    return metric.removesuffix("/joint_goal_accuracy")


def _label_layers(scene: Scene, axes: _Axes) -> list[Any]:
    import altair as alt

    tied = [label for label in scene.labels if label["leader"]]
    ties = alt.Chart(alt.Data(values=tied)).mark_rule(strokeWidth=0.6, color=FAINT, opacity=0.7)
    layers = [ties.encode(x=axes.x("from_x"), y=axes.y("from_y"), x2="to_x:Q", y2="to_y:Q")] if tied else []
    ink = alt.condition("datum.front", alt.value(INK), alt.value(FAINT))
    for align in ("left", "right", "center"):
        kept = [label for label in scene.labels if label["align"] == align]
        if kept:
            base = alt.Chart(alt.Data(values=kept)).encode(x=axes.x("x"), y=axes.y("y"), text="text:N")
            style = {"fontSize": SIZE, "align": align, "baseline": "middle"}
            layers.append(base.mark_text(**style, stroke="white", strokeWidth=3, strokeJoin="round", aria=False))
            layers.append(base.mark_text(**style).encode(color=ink))
    return layers


def _form(scale: Scale) -> str:
    """d3's form of the ticks: as many decimals as five ticks need."""
    step = (scale.high - scale.low) / 6
    decimals = max(0, -math.floor(math.log10(step))) if step > 0 else 0
    return "~g" if scale.log else f",.{decimals}f"


def _key(names: Sequence[str], n_panels: int) -> Any:
    """What the numbers stand for, in columns."""
    import altair as alt

    width = WIDTH * n_panels + (GAP + 50) * (n_panels - 1)
    texts = [f"{i + 1}  {printable(name, 90)}" for i, name in enumerate(names)]
    columns = max(1, min(4, int(width // (max(text_width(t, SIZE) for t in texts) + 16))))
    rows = math.ceil(len(texts) / columns)
    cells = [{"text": t, "column": (i // rows) * width / columns, "row": i % rows} for i, t in enumerate(texts)]
    place_x = alt.X("column:Q", scale=alt.Scale(domain=[0, width], nice=False), axis=None)
    place_y = alt.Y("row:Q", scale=alt.Scale(domain=[-0.5, rows - 0.5], reverse=True, nice=False), axis=None)
    words = alt.Chart(alt.Data(values=cells)).mark_text(align="left", baseline="middle", fontSize=SIZE, color=INK)
    return words.encode(x=place_x, y=place_y, text="text:N").properties(
        width=width, height=rows * 16, view={"stroke": None}
    )
