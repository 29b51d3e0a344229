"""How long a job takes: the pace of an engine from its calls, and the job played at that pace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.duration import Chain, Pace, Room, Work, chains_of, fit, mean_in_flight, play
from dialoom.unit import UnitKey

TIMES = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 20)), min_size=1, max_size=30)
CHAINS = st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=6), min_size=1, max_size=20)
TOKEN_S = 0.01


def chains(lengths: Sequence[Sequence[int]], engine: str = "e") -> list[Chain]:
    return [[Work(engine, float(n), 0.0) for n in one] for one in lengths]


@given(TIMES)
def test_mean_in_flight_counts_what_overlaps(calls: list[tuple[float, float]]) -> None:
    started = np.array([s for s, _ in calls])
    ended = np.array([s + d for s, d in calls])
    for i, found in enumerate(mean_in_flight(started, ended)):
        overlap = np.minimum(ended, ended[i]) - np.maximum(started, started[i])
        assert found == pytest.approx(np.maximum(0.0, overlap).sum() / (ended[i] - started[i]), rel=1e-6, abs=1e-6)


def test_answers_of_one_length_of_time_have_a_base_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    n = 40
    pace = fit(rng.uniform(1, 90, n), rng.uniform(0, 900, n), np.linspace(0.0, 1.2, n), np.full(n, 0.1))
    assert pace.base == pytest.approx(0.1)
    assert pace.step == pace.load == pace.prefill == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_pace_that_made_the_calls_is_found(replicas: int) -> None:
    """Waves of more and more calls, all of a wave beside each other for all of their time."""
    rng = np.random.default_rng(1)
    true = Pace(0.2, 0.02, 0.003, 0.0004)
    started, tokens, uncached, seconds = [], [], [], []
    for wave in range(1, 13):
        output = float(rng.integers(5, 200))
        fresh = float(rng.integers(0, 2000))
        for _ in range(wave * replicas):
            started.append(wave * 1000.0)
            tokens.append(output)
            uncached.append(fresh)
            seconds.append(true.base + output * (true.step + true.load * wave) + fresh * true.prefill)
    found = fit(np.array(tokens), np.array(uncached), np.array(started), np.array(seconds), replicas)
    for name in ("base", "step", "load", "prefill"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6), name


@given(TIMES, st.integers(0, 2**32 - 1))
def test_no_figure_of_a_pace_is_negative(calls: list[tuple[float, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = len(calls)
    started, seconds = np.array([s for s, _ in calls]), np.array([d for _, d in calls])
    pace = fit(rng.uniform(0, 300, n), rng.uniform(0, 3000, n), started, seconds)
    assert min(pace.base, pace.step, pace.load, pace.prefill) >= 0
    assert all(map(math.isfinite, (pace.base, pace.step, pace.load, pace.prefill)))


def test_a_pace_needs_calls() -> None:
    with pytest.raises(ValueError, match="needs calls"):
        fit(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


@given(CHAINS, st.integers(1, 8), st.integers(1, 12))
def test_a_job_takes_no_less_than_its_work_and_its_longest_chain(
    lengths: list[list[int]], places: int, units: int
) -> None:
    found = play(chains(lengths), {"e": Pace(0.0, TOKEN_S, 0.0, 0.0)}, {"e": Room(1, places)}, units)
    total, longest = TOKEN_S * sum(map(sum, lengths)), TOKEN_S * max(map(sum, lengths))
    lanes = min(places, units)
    assert found >= max(total / lanes, longest) * (1 - 1e-6)
    assert found <= total / lanes + longest * (1 + 1e-6)


@given(CHAINS, st.integers(1, 8))
def test_load_makes_it_longer_unless_calls_are_alone(lengths: list[list[int]], places: int) -> None:
    light, loaded = (
        play(chains(lengths), {"e": Pace(0.0, TOKEN_S, load, 0.0)}, {"e": Room(1, places)}, 100) for load in (0.0, 0.02)
    )
    alone = play(chains(lengths), {"e": Pace(0.0, TOKEN_S + 0.02, 0.0, 0.0)}, {"e": Room(1, places)}, 100)
    assert loaded >= light
    assert loaded >= alone * (1 - 1e-6)  # a call is beside itself at least


def test_two_replicas_share_the_load() -> None:
    pace = {"e": Pace(0.0, 0.0, TOKEN_S, 0.0)}
    one = play(chains([[10]] * 8), pace, {"e": Room(1, 8)}, 8)
    two = play(chains([[10]] * 8), pace, {"e": Room(2, 4)}, 8)
    assert one == pytest.approx(2 * two)


def test_engines_have_places_of_their_own() -> None:
    mixed = [*chains([[100]] * 2, "slow"), *chains([[100]] * 4, "fast")]
    paces = {"slow": Pace(1.0, 0.0, 0.0, 0.0), "fast": Pace(0.1, 0.0, 0.0, 0.0)}
    assert play(mixed, paces, {"slow": Room(1, 1), "fast": Room(1, 4)}, 6) == pytest.approx(2.0)


def test_chains_hold_what_reached_an_engine_and_the_pauses_between() -> None:
    def row(call: int, at: float, **more: object) -> dict[str, object]:
        sent = datetime.fromtimestamp(1000 + at, UTC)
        return {
            "dialogue_id": "d", "method": "m", "cell": "", "trial": 0, "turn": 0, "call": call, "engine": "e",
            "paid": True, "sent_at": sent, "latency_s": 1.0, "output_tokens": 7,
            "prompt_tokens": 50, "cached_tokens": 20, **more,
        }  # fmt: skip

    rows = [row(3, 9.0), row(0, 0.0), row(1, 1.5), row(2, 2.5, paid=False)]
    first, second, after_replay = Work("e", 7.0, 30.0), Work("e", 7.0, 30.0, 0.5), Work("e", 7.0, 30.0)
    assert chains_of(rows) == {UnitKey("d", "m"): [first, second, after_replay]}


def test_a_pause_holds_no_place() -> None:
    two = [[Work("e", 0.0, 0.0), Work("e", 0.0, 0.0, gap_s=1.0)]] * 2
    assert play(two, {"e": Pace(1.0, 0.0, 0.0, 0.0)}, {"e": Room(1, 1)}, 2) == pytest.approx(4.0)
    alone = two[:1]
    assert play(alone, {"e": Pace(1.0, 0.0, 0.0, 0.0)}, {"e": Room(1, 1)}, 2) == pytest.approx(3.0)
