"""How sure a figure is: resampling whole dialogues, since turns of one dialogue are not independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dialoom.metric import Combine, Floats, Ints, Measured


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval at ``level``."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings of every bootstrap and permutation: seeded, so that the same data gives the same answer."""

    resamples: int = 1000
    level: float = 0.95
    seed: int = 20260519


_CELLS = 1 << 24
_MANY = 10_000
"""Above this many clusters the resampled sums are drawn from the normal distribution that they approach."""


def by_cluster(sums: Floats, clusters: Ints) -> Floats:
    """Sums of shape (k, dialogues) added up over dialogues of one cluster: (k, clusters)."""
    n = int(clusters.max()) + 1 if len(clusters) else 0
    if n == len(clusters):
        ordered: Floats = sums[:, np.argsort(clusters)]
        return ordered
    return np.stack([np.bincount(clusters, weights=row, minlength=n) for row in sums]).astype(np.float64)


def resampled_sums(sums: Floats, settings: Resampling) -> Floats:
    """Sums over clusters drawn with replacement: from (k, clusters) to (k, resamples)."""
    rng = np.random.default_rng(settings.seed)
    n = sums.shape[1]
    if n > _MANY:
        spread = np.atleast_2d(np.cov(sums, bias=True)) * n
        return rng.multivariate_normal(sums.sum(axis=1), spread, settings.resamples, method="eigh").T
    step = max(_CELLS // max(n, 1), 1)
    parts = []
    for start in range(0, settings.resamples, step):
        size = min(step, settings.resamples - start)
        draws = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        parts.append(sums @ draws.T)
    return np.concatenate(parts, axis=1)


def percentile_interval(values: Floats, level: float) -> Interval | None:
    """The central ``level`` of bootstrap values; undefined ones are left out, ``None`` where all are."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.percentile(defined, [50 * (1 - level), 50 * (1 + level)])
    return Interval(float(low), float(high), level)


@dataclass(frozen=True, slots=True)
class Paired:
    """How two systems differ on the ``n`` clusters (dialogues) that both have: second less first.

    ``p_value`` is two-sided, by a permutation test that swaps the two systems' results of whole dialogues at random.
    ``effect_size`` is the mean difference of a dialogue over its standard deviation (Cohen's d for pairs).
    """

    difference: float
    interval: Interval | None
    p_value: float
    effect_size: float | None
    n: int


def paired(first: Floats, second: Floats, combine: Combine, settings: Resampling) -> Paired | None:
    """Compare two systems from sums of shape (k, clusters) over the same clusters in the same order.

    ``None`` where the figure is undefined for either, or there are fewer than two clusters.
    """
    n = first.shape[1]
    totals = first.sum(axis=1), second.sum(axis=1)
    observed = float(combine(totals[1]) - combine(totals[0]))
    if n < 2 or np.isnan(observed):
        return None
    k = len(first)
    drawn = resampled_sums(np.concatenate([first, second]), settings)
    interval = percentile_interval(combine(drawn[k:]) - combine(drawn[:k]), settings.level)
    moved = _swapped_sums(second - first, settings)
    permuted = combine(totals[1][:, None] - moved) - combine(totals[0][:, None] + moved)
    # Rounding must not make a permutation that changes nothing look less extreme than what was observed.
    extreme = np.abs(permuted[~np.isnan(permuted)]) >= abs(observed) * (1 - 1e-9) - 1e-12
    p_value = (1 + int(extreme.sum())) / (1 + len(extreme))
    return Paired(observed, interval, p_value, _effect(first, second, combine), n)


def _swapped_sums(difference: Floats, settings: Resampling) -> Floats:
    """Sums of ``difference`` over a random half of the clusters, drawn anew each time: (k, resamples)."""
    rng = np.random.default_rng(settings.seed + 1)
    n = difference.shape[1]
    if n > _MANY:
        spread = difference @ difference.T / 4
        return rng.multivariate_normal(difference.sum(axis=1) / 2, spread, settings.resamples, method="eigh").T
    step = max(_CELLS // max(n, 1), 1)
    parts = []
    for start in range(0, settings.resamples, step):
        size = min(step, settings.resamples - start)
        parts.append(difference @ rng.integers(0, 2, (size, n)).astype(np.float64).T)
    return np.concatenate(parts, axis=1)


def _effect(first: Floats, second: Floats, combine: Combine) -> float | None:
    difference = combine(second) - combine(first)
    difference = difference[~np.isnan(difference)]
    deviation = float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
    return float(difference.mean()) / deviation if deviation > 0 else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given: reject where the adjusted value is below the level."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def intervals(measures: Mapping[str, Measured], clusters: Ints, settings: Resampling) -> dict[str, Interval]:
    """Bootstrap intervals of all measures that are functions of sums, from one set of draws."""
    kept: list[tuple[str, Combine, Floats]] = []
    for name, m in measures.items():
        if m.sums is not None and m.combine is not None and m.overall.value is not None:
            kept.append((name, m.combine, by_cluster(m.sums, clusters)))
    if not kept or kept[0][2].shape[1] < 2:
        return {}
    drawn = resampled_sums(np.concatenate([s for _, _, s in kept]), settings)
    found, at = {}, 0
    for name, combine, sums in kept:
        interval = percentile_interval(combine(drawn[at : at + len(sums)]), settings.level)
        at += len(sums)
        if interval is not None:
            found[name] = interval
    return found
