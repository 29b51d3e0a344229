"""What a job will need before it runs: calls, tokens, money and time, each with a range.

From a sample of the job's own dialogues, or from an earlier run of the same methods. Totals grow with the number of
user turns (ratio estimate); their ranges come from a bootstrap over dialogues. Time comes from playing the job with the
sample's calls; its range is wider, for what else a machine does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dialoom.dialogue import Dialogue, Speaker
from dialoom.duration import MOST_CALLS, Chain, Pace, Room, chains_of, fit, play
from dialoom.errors import JobError
from dialoom.reader import open_dialogues
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from dialoom.runtime.sweep import stages
from dialoom.traces.read import read_table
from dialoom.unit import UnitKey
from dialoom.usage import Usage

RESAMPLES = 2000
LEVEL = 0.9
PLAYS = 12
"""Draws of the sample with which the job is played for the range of its time."""
MACHINE = 0.15
"""The range of time is wider by this share on either side, for what else the machine does."""
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


_CALLS = (
    *UnitKey._fields, "turn", "call", "role", "replica", "replayed", "error", "sent_at", "latency_s", "queue_s",
    "prompt_tokens", "cached_tokens", "output_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """A figure with the ends of its range: 90 % over samples; that of time is wider (``MACHINE``)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Size:
    """How large the job's input is."""

    dialogues: int
    user_turns: int
    bad_records: int


@dataclass(frozen=True)
class Estimate:
    """What the whole job needs. ``cost_usd`` is None where an engine has no price; ``seconds`` leave out the start."""

    size: Size
    units: int
    sampled: int
    calls: Range
    prompt_tokens: Range
    cached_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    seconds: Range


def input_size(plan: Plan) -> Size:
    """Dialogues and user turns of the job's input; reads it once."""
    data = plan.options.data
    dialogues = turns = bad = 0
    items = open_dialogues(data.reader, data.paths, data.options)
    for item in itertools.islice(itertools.islice(items, 0, None, data.stride), data.limit):
        if not isinstance(item, Dialogue):
            bad += 1
            continue
        dialogues += 1
        turns += sum(t.speaker is Speaker.USER for t in item.turns)
    return Size(dialogues, turns, bad)


def estimate(plan: Plan, sample: RunFolder, size: Size | None = None, *, seed: int = 0) -> Estimate:
    """The estimate for ``plan`` from the traces of ``sample``. Raises JobError where they hold no scored unit.

    A method or cell of the plan that the sample does not have is an error too.
    """
    size = size or input_size(plan)
    wanted = {(v.method, v.cell) for v in plan.variants}
    rows = _units(sample, wanted)
    weights = len(plan.variants) * plan.options.trials
    turns = rows["n_user_turns"].astype(float)
    scale = size.user_turns * weights
    picks = np.random.default_rng(seed).integers(0, len(turns), (RESAMPLES, len(turns)))

    def total(values: npt.NDArray[np.float64]) -> Range:
        ends = _ratio_ends(values, turns, picks)
        whole = values.sum() / turns.sum()
        return Range(*(float(scale * x) for x in (whole, *ends)))

    sums = {name: total(rows[name].astype(float)) for name in ("n_calls", *TOKENS)}
    return Estimate(
        size=size,
        units=size.dialogues * weights,
        sampled=len(turns),
        calls=sums["n_calls"],
        prompt_tokens=sums["prompt_tokens"],
        cached_tokens=sums["cached_tokens"],
        output_tokens=sums["output_tokens"],
        cost_usd=_cost(plan, sums),
        seconds=_seconds(plan, sample, size, seed),
    )


def _units(sample: RunFolder, wanted: set[tuple[str, str]]) -> dict[str, npt.NDArray[np.int64]]:
    columns = ["method", "cell", "n_user_turns", "n_calls", *TOKENS]
    table = read_table(sample.path, "dialogues", columns).to_pylist()
    rows = [r for r in table if (r["method"], r["cell"]) in wanted and r["n_calls"] and r["n_user_turns"]]
    missing = wanted - {(r["method"], r["cell"]) for r in rows}
    if missing:
        known = sorted({f"{r['method']}[{r['cell']}]" if r["cell"] else str(r["method"]) for r in table})
        raise JobError(
            f"the sample has no unit of {sorted(missing)[0][0]}", where=str(sample), hint=f"It has: {', '.join(known)}."
        )
    return {name: np.array([r[name] or 0 for r in rows]) for name in columns[2:]}


def _ratio_ends(
    values: npt.NDArray[np.float64], turns: npt.NDArray[np.float64], picks: npt.NDArray[np.int64]
) -> tuple[float, float]:
    ratios = values[picks].sum(axis=1) / turns[picks].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _cost(plan: Plan, sums: dict[str, Range]) -> Range | None:
    """Dollars for tokens, at the dearest price of the job's engines (a sample does not say which calls go where)."""
    prices = [e.price for e in plan.engines.values()]
    if not prices or any(p is None for p in prices):
        return None

    def dollars(pick: str) -> float:
        usage = Usage(*(int(getattr(sums[name], pick)) for name in TOKENS))
        return max(p.of(usage) for p in prices if p is not None)

    return Range(dollars("value"), dollars("low"), dollars("high"))


def _seconds(plan: Plan, sample: RunFolder, size: Size, seed: int) -> Range:
    """The job played with the sample's dialogues again and again, stage by stage (:mod:`dialoom.duration`).

    The range covers which dialogues the sample has, and ``MACHINE`` on either side. NaN where no engine answered in
    the sample, and where a stage of the plan has no calls there.
    """
    calls = _sample_calls(plan, sample)
    if not calls["paid"].any() and not plan.recorded:  # answered by a log that this job does not have
        return Range(float("nan"), float("nan"), float("nan"))
    names = calls["engine"].unique().to_list()
    paces = {name: _pace(calls.filter(pl.col("engine") == name)) for name in names}
    draws = np.random.default_rng(seed)
    times = np.zeros(1 + PLAYS)
    turns = _turns(sample)
    for stage in _stages(plan):
        cells = {(v.method, v.cell) for v in stage.variants}
        own = _chosen(calls.filter(pl.struct("method", "cell").is_in([{"method": m, "cell": c} for m, c in cells])))
        found = [(chain, turns[key]) for key, chain in chains_of(own.to_dicts()).items()]
        if not found:
            return Range(float("nan"), float("nan"), float("nan"))
        weight = plan.options.trials * len(stage.variants)
        job = _Job(stage, paces, size.dialogues * weight, size.user_turns * weight)
        picks = [np.arange(len(found)), *draws.integers(0, len(found), (PLAYS, len(found)))]
        times += [job.seconds([found[i] for i in pick]) for pick in picks]
    low, high = np.quantile(times[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Range(float(times[0]), float(min(low, times[0])) * (1 - MACHINE), float(max(high, times[0])) * (1 + MACHINE))


def _sample_calls(plan: Plan, sample: RunFolder) -> pl.DataFrame:
    """The sample's calls that an engine answered. ``engine`` is that of the plan: the sample's may have other names."""
    roles = [
        {"method": v.method, "cell": v.cell, "role": role, "engine": engine}
        for v in plan.variants
        for role, engine in v.roles.items()
    ]
    calls = pl.from_arrow(read_table(sample.path, "calls", _CALLS))
    assert isinstance(calls, pl.DataFrame)
    answered = ~pl.col("replayed") & pl.col("error").is_null() & pl.col("sent_at").is_not_null()
    known = calls.with_columns(paid=answered).join(pl.DataFrame(roles), on=["method", "cell", "role"])
    return known.filter(pl.col("paid") | pl.col("replayed")).sort(*UnitKey._fields, "turn", "call")


def _chosen(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of so many units, spread evenly, that they can be played."""
    units = calls.select(UnitKey._fields).unique(maintain_order=True)
    step = max(1, math.ceil(len(calls) / MOST_CALLS))
    return calls.join(units.gather_every(step), on=UnitKey._fields, maintain_order="left")


def _pace(calls: pl.DataFrame) -> Pace:
    """The pace of one engine, from the calls that it answered in the sample."""
    paid = calls.filter("paid").select(
        output=pl.col("output_tokens").fill_null(0),
        uncached=(pl.col("prompt_tokens") - pl.col("cached_tokens")).fill_null(0).clip(lower_bound=0),
        queued=pl.col("queue_s").fill_null(0.0),
        sent=pl.col("sent_at").dt.epoch("us") / 1e6,
        taken=pl.col("latency_s").fill_null(0.0),
        replica=pl.col("replica"),
    )
    if not len(paid):
        return Pace(0.0, 0.0, 0.0, 0.0)
    output, uncached, queued, sent, taken = (
        paid[name].to_numpy().astype(np.float64) for name in ("output", "uncached", "queued", "sent", "taken")
    )
    replicas = max(1, paid["replica"].n_unique())
    return fit(output, uncached, sent + queued, np.maximum(taken - queued, 1e-6), replicas)


def _turns(sample: RunFolder) -> dict[UnitKey, int]:
    rows = read_table(sample.path, "dialogues", [*UnitKey._fields, "n_user_turns"]).to_pylist()
    return {UnitKey(*(r[f] for f in UnitKey._fields)): r["n_user_turns"] or 0 for r in rows}


def _stages(plan: Plan) -> list[Plan]:
    """The parts that run one after another; engines on GPUs are taken to fit together."""
    on_gpus = any(e.resources.get("num_gpus") for e in plan.engines.values())
    return [plan] if on_gpus else stages(plan, 0.0)


@dataclass(frozen=True)
class _Job:
    """A stage of the plan: so many units with so many user turns in all."""

    plan: Plan
    paces: Mapping[str, Pace]
    units: int
    turns: int

    def seconds(self, sample: Sequence[tuple[Chain, int]]) -> float:
        """Time for the whole stage, from units with their user turns."""
        mean_calls = sum(len(chain) for chain, _ in sample) / len(sample)
        played = max(1, min(self.units, int(MOST_CALLS / max(mean_calls, 1.0))))
        found, turns = self._played(sample, played)
        if played < self.units:  # on at the rate of the second half
            half = max(1, played // 2)
            slower, fewer = self._played(sample, half)
            rest = self.turns - turns
            return found + max(0.0, found - slower) * max(0.0, rest) / max(1.0, turns - fewer)
        return found * self.turns / max(1.0, turns)

    def _played(self, sample: Sequence[tuple[Chain, int]], count: int) -> tuple[float, float]:
        """Seconds and user turns of ``count`` units: the sample's over and over, or an even part of it."""
        step = max(1.0, len(sample) / count)
        chosen = sorted((sample[int(i * step) % len(sample)] for i in range(count)), key=lambda s: -s[1])
        rooms = {n: Room(e.replicas, e.in_flight) for n, e in self.plan.engines.items()}
        at_once = self.plan.units_per_worker * self.plan.workers
        return play([chain for chain, _ in chosen], self.paces, rooms, at_once), float(sum(n for _, n in chosen))


def sample_job(plan: Plan, dialogues: int, folder: Path, size: Size) -> Plan:
    """The plan cut to about ``dialogues`` dialogues spread evenly over the input, with its run in ``folder``."""
    from dataclasses import replace

    data = plan.options.data
    spread = data.stride * max(1, size.dialogues // max(1, dialogues))
    limit = dialogues if data.limit is None else min(dialogues, data.limit)
    job = {**plan.job, "data": {**plan.job["data"], "stride": spread, "limit": limit}}
    job["run"] = {**plan.job["run"], "root": str(folder)}
    return replace(plan, job=job, name="sample")
