"""Labels beside points: never over each other, a point, or the frame."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from dialoom.placement import LEADER_FROM, Box, crosses, meet, place, text_width

FRAME = Box(0, 0, 400, 340)
MARKER = 5.0
spots = st.tuples(st.floats(10, 390), st.floats(10, 330))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(spots, st.text("abcdefW1 中", min_size=1, max_size=22)), max_size=14))
def test_labels_cover_nothing(items: list[tuple[tuple[float, float], str]]) -> None:
    points, labels = [p for p, _ in items], [t for _, t in items]
    placed = place(points, labels, FRAME, marker=MARKER)
    boxes = [s.box for s in placed if s is not None]
    assert len(placed) == len(points)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(b.inside(FRAME) for b in boxes)
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points]
    assert not any(b.overlaps(m) for b in boxes for m in markers)


def test_twelve_points_in_one_spot_all_get_a_label() -> None:
    placed = place([(200.0, 170.0)] * 12, [f"system {i}" for i in range(12)], FRAME)
    assert all(s is not None for s in placed)
    assert any(s.leader for s in placed if s)


def test_a_lone_label_stands_right_of_its_point() -> None:
    (spot,) = place([(200.0, 170.0)], ["one"], FRAME)
    assert spot is not None
    assert spot.align == "left"
    assert not spot.leader
    assert spot.x - 200 < LEADER_FROM


def test_at_the_right_edge_it_stands_left() -> None:
    (spot,) = place([(395.0, 170.0)], ["a longer name"], FRAME)
    assert spot is not None
    assert spot.box.right <= 400


def test_lines_are_kept_clear_where_there_is_room() -> None:
    line = (200.0, 170.0, 400.0, 170.0)
    (spot,) = place([(200.0, 170.0)], ["one"], FRAME, avoid=[line])
    assert spot is not None
    assert not crosses(line, spot.box)


def test_no_room_is_said() -> None:
    assert place([(5.0, 5.0)], ["much too long for this frame"], Box(0, 0, 40, 20)) == [None]


def test_a_segment_and_a_box() -> None:
    box = Box(10, 10, 20, 20)
    assert crosses((0, 15, 30, 15), box)
    assert crosses((12, 12, 13, 13), box)
    assert crosses((0, 0, 30, 30), box)
    assert not crosses((0, 0, 30, 5), box)
    assert not crosses((0, 15, 9, 15), box)
    assert not crosses((25, 0, 25, 30), box)


def test_segments_that_cross() -> None:
    assert meet((0, 0, 10, 10), (0, 10, 10, 0))
    assert not meet((0, 0, 10, 10), (0, 0, 10, 5))
    assert not meet((0, 0, 10, 0), (0, 5, 10, 5))


@given(st.text(max_size=20), st.text(max_size=20))
def test_width_adds_up(a: str, b: str) -> None:
    assert abs(text_width(a + b, 11) - text_width(a, 11) - text_width(b, 11)) < 1e-9
