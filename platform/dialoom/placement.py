"""Where labels of points go, so that none covers another, a point, or the frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

RADII = (9.0, 13.0, 19.0, 27.0, 38.0, 52.0, 70.0, 92.0)
ANGLES = tuple(math.pi * i / 12 for i in range(24))
LEADER_FROM = 17.0
"""A label farther than this from its point, in pixels, is tied to it by a line."""


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def inside(self, other: Box) -> bool:
        """Whether it lies wholly in ``other``."""
        return (
            self.left >= other.left
            and self.top >= other.top
            and self.right <= other.right
            and self.bottom <= other.bottom
        )


Segment = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a label goes: its anchor, which side of the text that is, the box it fills, and whether it needs a line."""

    x: float
    y: float
    align: str
    box: Box
    leader: bool


def text_width(text: str, size: float) -> float:
    """About how wide ``text`` is in a sans-serif font of ``size`` pixels; errs on the wide side."""
    return size * sum(_em(c) for c in text)


def _em(c: str) -> float:
    if c in "ijl.,:;|!' ":
        return 0.3
    if ord(c) > 0x2E7F:
        return 1.05
    return 0.88 if c in "mwMW%@" else 0.72 if c.isupper() else 0.6


def place(
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    frame: Box,
    *,
    size: float = 11.0,
    marker: float = 5.0,
    avoid: Sequence[Segment] = (),
) -> list[Spot | None]:
    """A spot for the label of every point, in order; earlier points choose first. None where there is no room.

    Labels never overlap each other, a marker (half its side: ``marker``) or the frame; lines in ``avoid`` and long ways
    are kept away from where that is possible.
    """
    markers = [Box(x - marker, y - marker, x + marker, y + marker) for x, y in points]
    taken: list[Box] = []
    ties: list[Segment] = []
    found: list[Spot | None] = []
    for point, label in zip(points, labels, strict=True):
        best, best_cost = None, math.inf
        for radius in RADII:
            if radius >= best_cost:
                break
            for angle in ANGLES:
                spot = _spot(point, label, radius, angle, size)
                if not spot.box.inside(frame) or any(spot.box.overlaps(b) for b in (*markers, *taken)):
                    continue
                cost = radius + _crossings(point, spot, [*avoid, *ties], taken, markers) + _taste(angle)
                if cost < best_cost:
                    best, best_cost = spot, cost
        found.append(best)
        if best is not None:
            taken.append(best.box)
            if best.leader:
                ties.append((*point, best.x, best.y))
    return found


def _spot(point: tuple[float, float], label: str, radius: float, angle: float, size: float) -> Spot:
    across, down = math.cos(angle), -math.sin(angle)
    x, y = point[0] + radius * across, point[1] + radius * down
    align = "center" if abs(across) < 0.3 else "left" if across > 0 else "right"
    width, half = text_width(label, size), size * 0.62
    left = {"left": x, "right": x - width, "center": x - width / 2}[align]
    return Spot(x, y, align, Box(left, y - half, left + width, y + half), radius > LEADER_FROM)


def _crossings(
    point: tuple[float, float], spot: Spot, lines: Sequence[Segment], taken: Sequence[Box], markers: Sequence[Box]
) -> float:
    cost = 14.0 * sum(crosses(line, spot.box) for line in lines)
    if spot.leader:
        tie = (*point, spot.x, spot.y)
        own = [m for m in markers if not (m.left <= point[0] <= m.right and m.top <= point[1] <= m.bottom)]
        middle = Box(*(c + d for c, d in zip(_middle(tie), (-1.5, -1.5, 1.5, 1.5), strict=True)))
        cost += 20.0 * sum(crosses(line, middle) for line in lines)
        cost += 25.0 * sum(crosses(tie, b) for b in (*taken, *own)) + 8.0 * sum(meet(tie, line) for line in lines)
    return cost


def _middle(line: Segment) -> Segment:
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return (x, y, x, y)


def _taste(angle: float) -> float:
    """Right of the point is read most easily, then above and below, left last."""
    return 2.0 - 2.0 * math.cos(angle) - 0.5 * math.sin(angle)


def crosses(line: Segment, box: Box) -> bool:
    """Whether a line segment meets a box (Liang and Barsky's clipping)."""
    x0, y0, x1, y1 = line
    first, last = 0.0, 1.0
    for step, start, low, high in ((x1 - x0, x0, box.left, box.right), (y1 - y0, y0, box.top, box.bottom)):
        if step == 0:
            if not low <= start <= high:
                return False
            continue
        ends = sorted(((low - start) / step, (high - start) / step))
        first, last = max(first, ends[0]), min(last, ends[1])
        if first > last:
            return False
    return True


def meet(one: Segment, other: Segment) -> bool:
    """Whether two segments cross; those that only share an end or lie along each other do not."""

    def side(line: Segment, x: float, y: float) -> float:
        return (line[2] - line[0]) * (y - line[1]) - (line[3] - line[1]) * (x - line[0])

    apart = side(one, *other[:2]) * side(one, *other[2:])
    return apart < 0 and side(other, *one[:2]) * side(other, *one[2:]) < 0
