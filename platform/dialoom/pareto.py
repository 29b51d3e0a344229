"""What a better score costs: the systems that none other beats in score and cost at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dialoom.systems import System, Value


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indexes of the points (cost, score) that no other point dominates, cheapest first.

    A point dominates another if it costs no more and scores no less, and is better in one of the two. Equal points are
    on the front together. Points with ``nan`` are never on it.
    """
    valid = [i for i, (x, y) in enumerate(points) if not (math.isnan(x) or math.isnan(y))]
    kept: list[int] = []
    for i in sorted(valid, key=lambda i: (points[i][0], -points[i][1], i)):
        if not kept or points[i][1] > points[kept[-1]][1] or points[i] == points[kept[-1]]:
            kept.append(i)
    return kept


@dataclass(frozen=True)
class Panel:
    """A score against one kind of cost, for the systems that have both; ``systems`` and ``on_front`` are parallel."""

    metric: str
    cost: str
    title: str
    """What the cost axis shows, with its unit."""
    systems: tuple[System, ...]
    on_front: tuple[bool, ...]

    def front_labels(self) -> tuple[str, ...]:
        """Labels of the systems on the front."""
        return tuple(s.label for s, on in zip(self.systems, self.on_front, strict=True) if on)

    def figures(self, system: System) -> tuple[Value, Value]:
        """Cost and score of one of the systems."""
        return system.figures[self.cost], system.figures[self.metric]


def panels(systems: Sequence[System], metric: str) -> tuple[Panel, ...]:
    """``metric`` against attributed cost, then against time; an axis that no system has a figure for is left out."""
    found = (_panel(systems, metric, *axis(systems)) for axis in (cost_axis, time_axis))
    return tuple(p for p in found if p.systems)


def cost_axis(systems: Sequence[System]) -> tuple[str, str]:
    """Name and title of the cost to compare by: dollars where every system has a price, else tokens a turn.

    A system without either figure, whose calls all failed, has no say.
    """
    answered = [s for s in systems if _known(s, "tokens") or _known(s, "cost_usd")]
    if answered and all(_known(s, "cost_usd") for s in answered):
        return "cost_usd", "Attributed cost (US$ per 1,000 dialogues)"
    why = "; not all systems have a price" if any(_known(s, "cost_usd") for s in systems) else ""
    return "tokens", f"Tokens a turn (prompt and output, mean{why})"


def time_axis(systems: Sequence[System]) -> tuple[str, str]:
    """Name and title of the time to compare by: latency as measured, but engine time where calls were replayed."""
    if any(s.replayed for s in systems):
        return "engine_s", "Engine time a turn (s, mean; waiting left out)"
    return "latency_s", "Latency of a turn (s, mean)"


def _panel(systems: Sequence[System], metric: str, cost: str, title: str) -> Panel:
    shown = tuple(s for s in systems if _known(s, cost) and _known(s, metric))
    sign = -1.0 if any(s.figures[metric].higher_is_better is False for s in shown) else 1.0
    best = set(front([(_number(s, cost), sign * _number(s, metric)) for s in shown]))
    return Panel(metric, cost, title, shown, tuple(i in best for i in range(len(shown))))


def _known(system: System, name: str) -> bool:
    found = system.figures.get(name)
    return found is not None and found.value is not None


def _number(system: System, name: str) -> float:
    value = system.figures[name].value
    return math.nan if value is None else value


def notes(systems: Sequence[System], metric: str) -> tuple[str, ...]:
    """What a reader of the front must know: by what cost and time it is, and who is not on it for want of a figure."""
    shown = panels(systems, metric)
    found = [f"Pareto front: {metric} by {' and by '.join(p.cost for p in shown)}."] if shown else []
    for panel in shown:
        missing = [s.label for s in systems if s not in panel.systems]
        if missing:
            found.append(f"Not placed by {panel.cost}, for want of a figure: {', '.join(missing)}.")
    if any(s.replayed for s in systems):
        found.append("A call log answered some calls: engine_s, the time computed in the engine, stands for latency_s.")
    return tuple(found)
