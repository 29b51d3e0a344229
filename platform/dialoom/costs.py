"""What a run cost, from its traces: attributed and paid, a thousand dialogues, and engine seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialoom.runtime.folder import RunFolder
from dialoom.traces.read import read_table

if TYPE_CHECKING:
    from dialoom.metric import Floats

COLUMNS = (
    "dialogue_id",
    "method",
    "cell",
    "run_s",
    "latency_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "paid_prompt_tokens",
    "paid_output_tokens",
    "cost_attributed_usd",
    "cost_paid_usd",
)


@dataclass(frozen=True)
class Cost:
    """Of one method and cell. Dollars are null where an engine has no price. Engine seconds are replica seconds.

    ``engine_s`` shares out the time the engines were up by the seconds each call was computed in them.
    """

    dialogues: int
    attributed_usd: float | None
    paid_usd: float | None
    engine_s: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int

    def per_thousand(self) -> dict[str, float]:
        """Figures a thousand dialogues that are known."""
        scale = 1000.0 / self.dialogues if self.dialogues else 0.0
        known = {
            "attributed_usd": self.attributed_usd,
            "paid_usd": self.paid_usd,
            "engine_s": self.engine_s,
            "prompt_tokens": float(self.prompt_tokens),
            "output_tokens": float(self.output_tokens),
        }
        return {f"{k}_per_1000_dialogues": v * scale for k, v in known.items() if v is not None}


def costs(folder: RunFolder) -> dict[tuple[str, str], Cost]:
    """(method, cell) to its cost. GPU hours come from ``run.json``: each engine's price, replicas and time up."""
    import polars as pl

    frame = pl.from_arrow(read_table(folder.path, "dialogues", COLUMNS).combine_chunks())
    assert isinstance(frame, pl.DataFrame)
    up = folder.read_json("run.json") or {}
    gpu_usd = _gpu_usd(up)
    engine_s = sum(float(e.get("replica_s") or 0.0) for e in (up.get("engine_time") or {}).values()) or None
    total_run_s = float(frame["run_s"].sum() or 0.0)
    found = {}
    for (method, cell), group in frame.group_by("method", "cell", maintain_order=True):
        share = float(group["run_s"].sum() or 0.0) / total_run_s if total_run_s else 0.0
        found[str(method), str(cell)] = Cost(
            dialogues=group.height,
            attributed_usd=_dollars(group, "cost_attributed_usd", gpu_usd * share),
            paid_usd=_dollars(group, "cost_paid_usd", gpu_usd * share),
            engine_s=None if engine_s is None else engine_s * share,
            prompt_tokens=int(group["prompt_tokens"].sum() or 0),
            cached_tokens=int(group["cached_tokens"].sum() or 0),
            output_tokens=int(group["output_tokens"].sum() or 0),
            reasoning_tokens=int(group["reasoning_tokens"].sum() or 0),
        )
    return found


def attributed_sums(folder: RunFolder) -> dict[tuple[str, str], Floats | None]:
    """(method, cell) to attributed dollars and units of every dialogue id: shape (2, dialogues); None without a price.

    Their sums' ratio is :func:`costs`' attributed dollars a unit; whole dialogues can be resampled.
    """
    import polars as pl

    frame = pl.from_arrow(read_table(folder.path, "dialogues", COLUMNS).combine_chunks())
    assert isinstance(frame, pl.DataFrame)
    known = costs(folder)
    gpu_usd = _gpu_usd(folder.read_json("run.json") or {})
    run_s = float(frame["run_s"].sum() or 0.0)
    usd = pl.col("cost_attributed_usd").fill_null(0.0)
    if gpu_usd and run_s:
        usd = usd + pl.col("run_s").fill_null(0.0) * (gpu_usd / run_s)
    found: dict[tuple[str, str], Floats | None] = {}
    for (method, cell), group in frame.group_by("method", "cell", maintain_order=True):
        key = str(method), str(cell)
        by_dialogue = group.group_by("dialogue_id", maintain_order=True)
        sums = by_dialogue.agg(usd.sum().alias("usd"), pl.len().cast(pl.Float64).alias("units"))
        found[key] = None if known[key].attributed_usd is None else sums.select("usd", "units").to_numpy().T
    return found


def replayed_calls(folder: RunFolder) -> dict[tuple[str, str], int]:
    """(method, cell) to how many of its calls a call log answered."""
    columns = ["method", "cell", "n_replayed"]
    counted = (
        read_table(folder.path, "dialogues", columns).group_by(["method", "cell"]).aggregate([("n_replayed", "sum")])
    )
    return {(r["method"], r["cell"]): int(r["n_replayed_sum"] or 0) for r in counted.to_pylist()}


def _gpu_usd(record: Mapping[str, object]) -> float:
    """What the engines of a run cost by the hour, all together."""
    times = record.get("engine_time")
    return sum(float(e.get("gpu_usd") or 0.0) for e in times.values()) if isinstance(times, Mapping) else 0.0


def _dollars(group: object, column: str, gpu_usd: float) -> float | None:
    """Dollars for tokens and GPU time together; None where neither is known."""
    import polars as pl

    assert isinstance(group, pl.DataFrame)
    ran = group.filter(pl.col("prompt_tokens") > 0)
    if ran.height and ran[column].null_count():
        return None
    return float(ran[column].sum() or 0.0) + gpu_usd


def run_costs(folder: RunFolder) -> Mapping[str, float]:
    """Flat figures of a run for the tracking server; ``method.cell/`` goes before them where there are several."""
    found = costs(folder)
    flat: dict[str, float] = {}
    for (method, cell), cost in found.items():
        head = "" if len(found) == 1 else (f"{method}.{cell}/" if cell else f"{method}/")
        flat |= {f"{head}{k}": v for k, v in cost.per_thousand().items()}
        for name in ("attributed_usd", "paid_usd", "engine_s"):
            value = getattr(cost, name)
            if value is not None:
                flat[f"{head}{name}"] = value
    return flat
