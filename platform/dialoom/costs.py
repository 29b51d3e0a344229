"""What a run cost, from its traces: attributed and paid, a thousand dialogues, and engine seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dialoom.runtime.folder import RunFolder
from dialoom.traces.read import read_table

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
    gpu_usd = sum(float(e.get("gpu_usd") or 0.0) for e in (up.get("engine_time") or {}).values())
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
