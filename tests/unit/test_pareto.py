"""The Pareto front, and the axes it is drawn over."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dialoom.pareto import cost_axis, front, notes, panels, time_axis
from support.systems import JGA, system

few = st.integers(0, 6).map(float)
points = st.lists(st.tuples(few, few), max_size=25)


def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[0] and a[1] >= b[1] and a != b


@given(points)
def test_the_front_is_exactly_what_no_point_dominates(found: list[tuple[float, float]]) -> None:
    on = front(found)
    assert sorted(on) == [i for i, p in enumerate(found) if not any(dominates(o, p) for o in found)]


@given(points)
def test_the_front_rises_from_cheap_to_dear(found: list[tuple[float, float]]) -> None:
    on = [found[i] for i in front(found)]
    assert all(a == b or (a[0] < b[0] and a[1] < b[1]) for a, b in pairwise(on))
    assert len(on) > 0 or not found


@given(points, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_the_front_of_the_front_is_itself(
    found: list[tuple[float, float]], random: object
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    kept = [found[i] for i in front(found)]
    assert kept == [shuffled[i] for i in front(shuffled)]
    assert front(kept) == list(range(len(kept)))


def test_a_point_without_a_figure_is_not_on_the_front() -> None:
    assert front([(math.nan, 1.0), (1.0, math.nan), (2.0, 0.5)]) == [2]


def test_dollars_only_where_every_system_has_a_price() -> None:
    priced = system("a", {JGA: 0.5, "cost_usd": 1.0, "tokens": 100.0})
    free = system("b", {JGA: 0.4, "tokens": 50.0})
    assert cost_axis([priced])[0] == "cost_usd"
    name, title = cost_axis([priced, free])
    assert name == "tokens"
    assert "not all systems have a price" in title
    assert "price" not in cost_axis([free])[1]


def test_a_system_without_an_answer_does_not_turn_the_axis_from_dollars() -> None:
    priced = system("priced", {JGA: 0.5, "cost_usd": 0.2, "tokens": 10.0})
    unanswered = system("unanswered", {JGA: 0.0, "calls": 1.0})
    assert cost_axis([priced, unanswered])[0] == "cost_usd"
    (panel,) = panels([priced, unanswered], JGA)
    assert panel.front_labels() == ("priced",)
    assert cost_axis([unanswered])[0] == "tokens"


def test_engine_time_where_calls_were_replayed() -> None:
    figures = {JGA: 0.5, "tokens": 1.0, "latency_s": 2.0, "engine_s": 1.0}
    measured, replayed = system("a", figures), system("b", figures, replayed=True)
    assert time_axis([measured])[0] == "latency_s"
    assert time_axis([measured, replayed])[0] == "engine_s"
    assert any("call log" in n for n in notes([measured, replayed], JGA))


def test_panels_place_those_that_have_both_figures_and_say_who_has_not() -> None:
    systems = [
        system("good", {JGA: 0.6, "tokens": 200.0}),
        system("cheap", {JGA: 0.4, "tokens": 100.0}),
        system("beaten", {JGA: 0.3, "tokens": 150.0}),
        system("unknown", {JGA: None, "tokens": 10.0}),
    ]
    (panel,) = panels(systems, JGA)
    assert panel.cost == "tokens"
    assert panel.front_labels() == ("good", "cheap")
    assert [s.label for s in panel.systems] == ["good", "cheap", "beaten"]
    assert any("unknown" in n for n in notes(systems, JGA))


def test_a_metric_that_is_better_low_has_its_front_below() -> None:
    systems = [system("a", {"calls": 2.0, "tokens": 1.0}), system("b", {"calls": 4.0, "tokens": 2.0})]
    assert panels(systems, "calls")[0].front_labels() == ("a",)
