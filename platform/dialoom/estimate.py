"""What a job will need before it runs: calls, tokens, money and time, each with a range.

From a sample of the job's own dialogues, or from an earlier run of the same methods. Totals grow with the number of
user turns (ratio estimate); their ranges come from a bootstrap over dialogues. Time comes from playing the job with the
sample's calls; its range is wider, for what else a machine does. Each call costs what its engine asks for, and GPUs by
the hour cost the time they are played for.
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
from dialoom.prices import Price
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
MOST_LISTED = 10 * MOST_CALLS
"""Calls of the sample that are looked at for the time; more come from an earlier run that was large."""
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


_CALLS = (
    *UnitKey._fields, "turn", "call", "digest", "role", "replica", "replayed", "error", "sent_at", "latency_s",
    "queue_s", *TOKENS,
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
class Amounts:
    """Calls, tokens and dollars. ``cost_usd`` is None where it cannot be known."""

    calls: Range
    prompt_tokens: Range
    cached_tokens: Range
    output_tokens: Range
    cost_usd: Range | None


@dataclass(frozen=True)
class Estimate:
    """What the whole job needs. ``seconds`` leave out the start of engines, and so do the dollars of their GPUs.

    ``calls`` to ``cost_usd`` are attributed: every cell bears all of its calls. ``paid`` is the bill: equal
    calls count once. ``notes`` say what a cost that is None lacks.
    """

    size: Size
    units: int
    sampled: int
    sampled_dialogues: int
    calls: Range
    prompt_tokens: Range
    cached_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    paid: Amounts
    seconds: Range
    notes: tuple[str, ...] = ()


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
    turns = _turns(sample, {(v.method, v.cell) for v in plan.variants})
    calls = _sample_calls(plan, sample, turns)
    weights = len(plan.variants) * plan.options.trials
    by_dialogue: dict[str, int] = {}
    for key, n in turns.items():
        by_dialogue[key.dialogue_id] = by_dialogue.get(key.dialogue_id, 0) + n
    draws = _Draws(by_dialogue, size.user_turns * weights, seed)
    seconds, gpu_usd = _time_and_gpus(plan, calls, turns, size, seed)
    notes = _unknown_costs(plan, gpu_usd)
    prices = {} if notes else {n: p for n in _used(plan) if (p := plan.engines[n].price) is not None}
    attributed = _amounts(calls, draws, prices, gpu_usd)
    return Estimate(
        size=size,
        units=size.dialogues * weights,
        sampled=len(turns),
        sampled_dialogues=len(by_dialogue),
        **vars(attributed),
        paid=_amounts(calls.filter("billed"), draws, prices, gpu_usd),
        seconds=seconds,
        notes=notes,
    )


def _turns(sample: RunFolder, wanted: set[tuple[str, str]]) -> dict[UnitKey, int]:
    """User turns of every unit of the sample that counts. Raises JobError where a method or cell has none."""
    columns = [*UnitKey._fields, "n_user_turns", "n_calls"]
    table = read_table(sample.path, "dialogues", columns).to_pylist()
    rows = [r for r in table if (r["method"], r["cell"]) in wanted and r["n_calls"] and r["n_user_turns"]]
    missing = wanted - {(r["method"], r["cell"]) for r in rows}
    if missing:
        known = sorted({f"{r['method']}[{r['cell']}]" if r["cell"] else str(r["method"]) for r in table})
        raise JobError(
            f"the sample has no unit of {sorted(missing)[0][0]}", where=str(sample), hint=f"It has: {', '.join(known)}."
        )
    return {UnitKey(*(r[f] for f in UnitKey._fields)): int(r["n_user_turns"]) for r in rows}


class _Draws:
    """Totals of the job from sums of the sample's dialogues, and the ends of their ranges.

    Whole dialogues are drawn: the cells of one dialogue are much alike.
    """

    def __init__(self, turns: Mapping[str, int], job_turns: int, seed: int) -> None:
        self._ids = {dialogue_id: i for i, dialogue_id in enumerate(turns)}
        self._turns = np.array(list(turns.values()), dtype=np.float64)
        self._job_turns = job_turns
        self._picks = np.random.default_rng(seed).integers(0, len(turns), (RESAMPLES, len(turns)))

    def total(self, sums: Mapping[str, float]) -> Range:
        """The job's total of what came to these sums, by dialogue, in the sample."""
        values = np.zeros(len(self._ids))
        for dialogue_id, value in sums.items():
            values[self._ids[dialogue_id]] = value
        ratios = values[self._picks].sum(axis=1) / self._turns[self._picks].sum(axis=1)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        whole = values.sum() / self._turns.sum()
        return Range(*(float(self._job_turns * x) for x in (whole, low, high)))


def _amounts(calls: pl.DataFrame, draws: _Draws, prices: Mapping[str, Price], gpu_usd: Range) -> Amounts:
    """What these calls of the sample come to in the job; each at its own engine's price, unknown without prices."""
    sums = [pl.len().alias("calls"), *(pl.col(name).sum() for name in TOKENS)]
    by_dialogue = calls.group_by("dialogue_id").agg(sums)
    found = {n: draws.total(dict(by_dialogue.select("dialogue_id", n).iter_rows())) for n in ("calls", *TOKENS[:3])}
    cost = None
    if prices:
        dollars: dict[str, float] = {}
        for row in (
            calls.group_by("dialogue_id", "engine").agg(sums).sort("dialogue_id", "engine").iter_rows(named=True)
        ):
            usd = prices[row["engine"]].of(Usage(*(row[name] for name in TOKENS)))
            dollars[row["dialogue_id"]] = dollars.get(row["dialogue_id"], 0.0) + usd
        tokens = draws.total(dollars)
        cost = Range(tokens.value + gpu_usd.value, tokens.low + gpu_usd.low, tokens.high + gpu_usd.high)
    return Amounts(**found, cost_usd=cost)


def _used(plan: Plan) -> list[str]:
    """The engines that a method calls; the others are not started."""
    called = {engine for v in plan.variants for engine in v.roles.values()}
    return [name for name in plan.engines if name in called]


def _unknown_costs(plan: Plan, gpu_usd: Range) -> tuple[str, ...]:
    """What keeps the total cost from being known."""
    notes = []
    for name in _used(plan):
        spec = plan.engines[name]
        if spec.price is None:
            notes.append(f"the cost is not known: engine '{name}' has no price")
        elif spec.price.gpu_hour and not spec.hosted:
            notes.append(f"the cost is not known: the GPUs of engine '{name}', priced by the hour, do not run here")
    if not notes and math.isnan(gpu_usd.value):
        notes.append("the cost is not known: GPUs are paid by the hour, and the sample says nothing of time")
    return tuple(notes)


def _gpu_usd_per_s(plan: Plan) -> float:
    """Dollars a second for the GPUs of all replicas of the plan's engines; a replica without any counts as one GPU."""
    rate = 0.0
    for name in _used(plan):
        spec = plan.engines[name]
        if spec.price is not None and spec.hosted:
            gpus = float(spec.resources.get("num_gpus", 0.0)) or 1.0
            rate += spec.replicas * gpus * spec.price.gpu_hour / 3600.0
    return rate


def _time_and_gpus(
    plan: Plan, calls: pl.DataFrame, turns: Mapping[UnitKey, int], size: Size, seed: int
) -> tuple[Range, Range]:
    """Seconds, and dollars for GPUs: the job played with the sample's dialogues again and again, stage by stage.

    See :mod:`dialoom.duration`. The ranges cover which dialogues the sample has, and ``MACHINE`` on either side. NaN
    where no engine answered in the sample, and where a stage of the plan has no calls there.
    """
    parts = _stages(plan)
    rates = [_gpu_usd_per_s(stage) for stage in parts]
    unknown, nothing = Range(math.nan, math.nan, math.nan), Range(0.0, 0.0, 0.0)
    without = unknown, unknown if any(rates) else nothing
    if not calls["paid"].any() and not plan.recorded:  # answered by a log that this job does not have
        return without
    names = calls["engine"].unique().to_list()
    paces = {name: _pace(calls.filter(pl.col("engine") == name)) for name in names}
    ids = calls["dialogue_id"].unique(maintain_order=True).to_list()
    picks = [
        ids,
        *([ids[i] for i in pick] for pick in np.random.default_rng(seed).integers(0, len(ids), (PLAYS, len(ids)))),
    ]
    times, dollars = np.zeros(1 + PLAYS), np.zeros(1 + PLAYS)
    for stage, rate in zip(parts, rates, strict=True):
        found = _stage_units(stage, calls, turns)
        if not found:
            return without
        weight = plan.options.trials * len(stage.variants)
        job = _Job(stage, paces, size.dialogues * weight, size.user_turns * weight)
        whole = [unit for units in found.values() for unit in units]
        drawn = ([unit for dialogue_id in pick for unit in found.get(dialogue_id, ())] for pick in picks)
        taken = np.array([job.seconds(units or whole) for units in drawn])
        times += taken
        dollars += rate * taken
    return _machine_range(times), _machine_range(dollars)


def _stage_units(stage: Plan, calls: pl.DataFrame, turns: Mapping[UnitKey, int]) -> dict[str, list[tuple[Chain, int]]]:
    """The sample's units of a stage, by dialogue: their calls and user turns."""
    cells = pl.DataFrame([{"method": v.method, "cell": v.cell} for v in stage.variants])
    own = _chosen(calls.join(cells, on=["method", "cell"], how="semi", maintain_order="left"))
    found: dict[str, list[tuple[Chain, int]]] = {}
    for key, chain in chains_of(own.to_dicts()).items():
        found.setdefault(key.dialogue_id, []).append((chain, turns[key]))
    return found


def _machine_range(played: npt.NDArray[np.float64]) -> Range:
    """The first figure, with the range of the others and of the machine."""
    low, high = np.quantile(played[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = float(played[0])
    return Range(value, float(min(low, value)) * (1 - MACHINE), float(max(high, value)) * (1 + MACHINE))


def _sample_calls(plan: Plan, sample: RunFolder, turns: Mapping[UnitKey, int]) -> pl.DataFrame:
    """The calls of the sample's units that were answered. ``engine`` is that of the plan: the sample may name others.

    ``paid`` ones were answered by an engine there. ``billed`` ones will be paid in the job: these, and
    of equal calls that a log answered which this job does not have the first.
    """
    roles = [
        {"method": v.method, "cell": v.cell, "role": role, "engine": engine}
        for v in plan.variants
        for role, engine in v.roles.items()
    ]
    calls = pl.from_arrow(read_table(sample.path, "calls", _CALLS))
    assert isinstance(calls, pl.DataFrame)
    units = pl.DataFrame(list(turns), schema={n: calls.schema[n] for n in UnitKey._fields}, orient="row")
    answered = pl.col("error").is_null() & pl.col("sent_at").is_not_null()
    known = calls.with_columns(
        *(pl.col(name).fill_null(0) for name in TOKENS), paid=answered & ~pl.col("replayed")
    ).join(pl.DataFrame(roles), on=["method", "cell", "role"])
    known = known.filter(pl.col("paid") | pl.col("replayed")).join(units, on=UnitKey._fields, how="semi")
    known = known.sort(*UnitKey._fields, "turn", "call")
    elsewhere = ~pl.col("paid").any().over("digest") & pl.col("digest").is_first_distinct()
    return known.with_columns(billed=pl.col("paid") | (elsewhere & pl.lit(not plan.recorded)))


def _chosen(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of so many dialogues, spread evenly, that they can be played."""
    dialogues = calls.select("dialogue_id").unique(maintain_order=True)
    step = max(1, math.ceil(len(calls) / MOST_LISTED))
    return calls.join(dialogues.gather_every(step), on="dialogue_id", how="semi", maintain_order="left")


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
