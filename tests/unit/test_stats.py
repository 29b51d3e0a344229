"""Bootstrap intervals: seeded, by cluster, and true to their level."""

from __future__ import annotations

import numpy as np
import pytest

from dialoom.metric import Measured, mean_of, ratio
from dialoom.stats import Resampling, holm, intervals, paired


def measure(values: np.ndarray, dialogue: np.ndarray, n: int) -> dict[str, Measured]:
    return {"m": mean_of(values, dialogue, n)}


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(0)
    data = measure(rng.random(500), np.repeat(np.arange(100), 5), 100)
    clusters = np.arange(100)
    one, again = (intervals(data, clusters, Resampling(seed=5)) for _ in range(2))
    assert one == again
    assert one != intervals(data, clusters, Resampling(seed=6))
    assert one["m"].low < data["m"].overall.value < one["m"].high  # type: ignore[operator]


def test_one_dialogue_has_no_interval() -> None:
    assert intervals(measure(np.ones(3), np.zeros(3, np.int64), 1), np.zeros(1, np.int64), Resampling()) == {}


def test_trials_of_a_dialogue_are_drawn_together() -> None:
    """Ten copies of each dialogue carry no more evidence than one."""
    rng = np.random.default_rng(1)
    values = rng.random(50)
    single = intervals(measure(values, np.arange(50), 50), np.arange(50), Resampling())["m"]
    copied = measure(np.tile(values, 10), np.arange(500), 500)
    together = intervals(copied, np.tile(np.arange(50), 10), Resampling())["m"]
    assert together.low == pytest.approx(single.low)
    assert together.high == pytest.approx(single.high)


def test_intervals_cover_at_their_level() -> None:
    """Turns within a dialogue share a success rate; 300 simulated corpora of 80 dialogues, 90 % intervals."""
    rng = np.random.default_rng(2)
    dialogue = np.repeat(np.arange(80), 6)
    hits, naive = 0, 0
    for i in range(300):
        rate = rng.beta(1.2, 0.8, 80)
        values = (rng.random(480) < rate[dialogue]).astype(float)
        found = intervals(measure(values, dialogue, 80), np.arange(80), Resampling(400, 0.9, i))["m"]
        hits += found.low <= 0.6 <= found.high
        width = 1.645 * values.std() / np.sqrt(480)
        naive += abs(values.mean() - 0.6) <= width
    assert 0.85 <= hits / 300 <= 0.95
    assert naive / 300 < 0.8


def test_many_dialogues_are_drawn_from_the_limit_distribution() -> None:
    """Above 10,000 dialogues sums come from a normal distribution: the interval is that of plain resampling."""
    rng = np.random.default_rng(3)
    n = 12_000
    rate = rng.beta(1, 1, n)
    data = measure((rng.random(3 * n) < np.tile(rate, 3)).astype(float), np.tile(np.arange(n), 3), n)["m"]
    assert data.sums is not None and data.combine is not None
    quick = intervals({"m": data}, np.arange(n), Resampling())["m"]
    draws = rng.integers(0, n, (400, n))
    plain = [float(data.combine(data.sums[:, d].sum(axis=1))) for d in draws]
    assert quick.low == pytest.approx(np.percentile(plain, 2.5), abs=0.001)
    assert quick.high == pytest.approx(np.percentile(plain, 97.5), abs=0.001)


def corpus(rng: np.random.Generator, n: int, gain: float) -> tuple[np.ndarray, np.ndarray]:
    """Right turns of two systems over ``n`` dialogues of six turns; they share each dialogue's difficulty."""
    easy = rng.beta(1.5, 1.5, (n, 1))
    first = rng.random((n, 6)) < easy
    second = rng.random((n, 6)) < np.clip(easy + gain, 0, 1)
    turns = np.full(n, 6.0)
    return np.stack([first.sum(axis=1), turns]), np.stack([second.sum(axis=1), turns])


def test_the_permutation_test_keeps_its_level_and_has_power() -> None:
    rng = np.random.default_rng(4)
    p_null = [_p(corpus(rng, 50, 0.0), i) for i in range(200)]
    assert 0.01 <= np.mean(np.array(p_null) < 0.05) <= 0.10
    p_gain = [_p(corpus(rng, 50, 0.15), i) for i in range(40)]
    assert np.mean(np.array(p_gain) < 0.05) > 0.8


def _p(sides: tuple[np.ndarray, np.ndarray], seed: int) -> float:
    found = paired(*sides, ratio, Resampling(200, seed=seed))
    assert found is not None
    return found.p_value


def test_paired_intervals_cover_the_true_difference() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for i in range(200):
        easy = rng.uniform(0.2, 0.7, (60, 1))
        sides = [np.stack([(rng.random((60, 5)) < easy + g).sum(axis=1), np.full(60, 5.0)]) for g in (0.0, 0.1)]
        found = paired(sides[0], sides[1], ratio, Resampling(300, 0.9, i))
        assert found is not None and found.interval is not None
        hits += found.interval.low <= 0.1 <= found.interval.high
    assert 0.84 <= hits / 200 <= 0.96


def test_the_effect_size_is_the_standardised_mean_difference() -> None:
    first = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]])
    second = np.array([[2.0, 2.0, 5.0, 4.0], [5.0, 5.0, 5.0, 5.0]])
    found = paired(first, second, ratio, Resampling(100))
    assert found is not None
    gains = np.array([0.2, 0.0, 0.4, 0.0])
    assert found.effect_size == pytest.approx(gains.mean() / gains.std(ddof=1))
    assert found.difference == pytest.approx(0.15)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
