"""What a job will need before it runs: calls, tokens, money and time, each with a range.

From a sample of the job's own dialogues, or from an earlier run of the same methods. Totals grow with the number of
user turns (ratio estimate); ranges come from a bootstrap over dialogues, so they cover what dialogues differ in, and
not what a busy machine does to time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dialoom.dialogue import Dialogue, Speaker
from dialoom.errors import JobError
from dialoom.reader import open_dialogues
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import Plan
from dialoom.traces.read import read_table
from dialoom.usage import Usage

RESAMPLES = 2000
LEVEL = 0.9
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class Range:
    """A figure with the ends of its 90 % range."""

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
    for item in open_dialogues(data.reader, data.paths, data.options):
        if not isinstance(item, Dialogue):
            bad += 1
            continue
        dialogues += 1
        turns += sum(t.speaker is Speaker.USER for t in item.turns)
        if data.limit is not None and dialogues >= data.limit:
            break
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
        seconds=_seconds(plan, sample, sums["n_calls"]),
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


def _seconds(plan: Plan, sample: RunFolder, calls: Range) -> Range:
    """Calls over the rate of the sample's middle part, when its engines were full."""
    columns = ["sent_at", "latency_s", "replayed", "engine"]
    rows = [r for r in read_table(sample.path, "calls", columns).to_pylist() if not r["replayed"] and r["sent_at"]]
    if len(rows) < 4:
        return Range(float("nan"), float("nan"), float("nan"))
    ended = np.sort(np.array([r["sent_at"].timestamp() + (r["latency_s"] or 0.0) for r in rows]))
    rates = _windows(ended)
    middle = float(np.median(rates))
    local = [e for e in plan.engines.values() if not e.hosted]
    if len(local) == len(plan.engines):  # answers take a time of their own: the rate is set by the calls in flight
        latency = float(np.mean([r["latency_s"] or 0.0 for r in rows])) or 1e-3
        middle = max(middle, plan.capacity / latency)
        rates = [middle * 0.85, middle * 1.15]
    return Range(calls.value / middle, calls.low / max(rates), calls.high / max(min(rates), 1e-9))


def _windows(ended: npt.NDArray[np.float64]) -> Sequence[float]:
    """Calls a second in four equal parts between the first and the last tenth of the answers."""
    cut = max(1, len(ended) // 10)
    middle = ended[cut:-cut] if len(ended) > 4 * cut else ended
    parts = np.array_split(middle, min(4, max(1, len(middle) // 8)))
    rates = [(len(p) - 1) / (p[-1] - p[0]) for p in parts if len(p) > 1 and p[-1] > p[0]]
    return rates or [len(ended) / max(ended[-1] - ended[0], 1e-3)]


def sample_job(plan: Plan, dialogues: int, folder: Path, size: Size) -> Plan:
    """The plan cut to about ``dialogues`` dialogues spread evenly over the input, with its run in ``folder``."""
    from dataclasses import replace

    job = {**plan.job, "data": {**plan.job["data"], "stride": max(1, size.dialogues // max(1, dialogues))}}
    job["data"]["limit"] = dialogues
    job["run"] = {**plan.job["run"], "root": str(folder)}
    return replace(plan, job=job, name="sample")
