"""What a run cost, from its traces: attributed and paid, a thousand dialogues, and engine seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from dialoom.errors import StorageError
from dialoom.paid import TOKENS
from dialoom.prices import Price
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.traces.read import read_table
from dialoom.usage import Usage

if TYPE_CHECKING:
    import polars as pl

    from dialoom.metric import Floats

COLUMNS = (
    "dialogue_id",
    "method",
    "cell",
    "n_calls",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "run_s",
    "cost_attributed_usd",
    "cost_paid_usd",
)
CALLS = ("dialogue_id", "method", "cell", "engine", "replayed", "run_s")
KEY = ("method", "cell")


@dataclass(frozen=True)
class Cost:
    """Of one method and cell. Dollars are null where an engine has no price, or no call was answered.

    An engine's GPUs are shared by the seconds computed in it (``run_s``). *Paid* shares out what they cost this run,
    by calls that were not replayed; *attributed* takes every call, replayed ones too, at the engine's dollars a second.
    ``engine_s`` shares out the replicas' seconds like *paid*.
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


@dataclass(frozen=True)
class RunPaid:
    """What all sessions of a run paid: tokens of its own call log, and the GPUs of its engines.

    ``rowless_usd`` is the part that no cell's ``paid_usd`` holds: calls whose rows count as replayed or that have no
    row, and engines that computed nothing.
    """

    tokens_usd: float
    gpu_usd: float
    rowless_usd: float

    @property
    def total_usd(self) -> float:
        """Tokens and GPUs together."""
        return self.tokens_usd + self.gpu_usd


def costs(folder: RunFolder) -> dict[tuple[str, str], Cost]:
    """(method, cell) to its cost, from the traces and ``run.json``. Raises StorageError."""
    import polars as pl

    ledger = _Ledger(folder)
    found = {}
    for (method, cell), group in ledger.units.group_by(*KEY, maintain_order=True):
        key = str(method), str(cell)
        calls = ledger.seconds.filter((pl.col("method") == key[0]) & (pl.col("cell") == key[1]))
        attributed = None if calls["gpu_usd"].null_count() else float(calls["gpu_usd"].sum())
        found[key] = Cost(
            dialogues=group.height,
            attributed_usd=_dollars(group, "cost_attributed_usd", attributed),
            paid_usd=_dollars(group, "cost_paid_usd", ledger.paid_gpu(calls)),
            engine_s=ledger.share(calls, "replica_s") if ledger.total("replica_s") else None,
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

    ledger = _Ledger(folder)
    known = costs(folder)
    gpu = ledger.seconds.group_by("dialogue_id", *KEY).agg(pl.col("gpu_usd").sum())
    by_dialogue = (
        ledger.units.group_by("dialogue_id", *KEY, maintain_order=True)
        .agg(pl.col("cost_attributed_usd").sum().alias("tokens_usd"), pl.len().cast(pl.Float64).alias("units"))
        .join(gpu, on=["dialogue_id", *KEY], how="left", maintain_order="left")
        .with_columns((pl.col("tokens_usd") + pl.col("gpu_usd").fill_null(0.0)).alias("usd"))
    )
    found: dict[tuple[str, str], Floats | None] = {}
    for (method, cell), group in by_dialogue.group_by(*KEY, maintain_order=True):
        key = str(method), str(cell)
        found[key] = None if known[key].attributed_usd is None else group.select("usd", "units").to_numpy().T
    return found


class _Ledger:
    """The units of a run, its calls' seconds by engine, and what its engines took.

    ``seconds``: ``run_s`` of each dialogue, method, cell and engine, ``computed_s`` without replayed calls, and the
    attributed ``gpu_usd``, null where the engine's dollars a second are not known.
    """

    def __init__(self, folder: RunFolder) -> None:
        import polars as pl

        self._record = folder.read_json("run.json") or {}
        self._times: Mapping[str, Mapping[str, float]] = self._record.get("engine_time") or {}
        self.units = _frame(folder, "dialogues", COLUMNS)
        run_s = pl.col("run_s").fill_null(0.0)
        seconds = (
            _frame(folder, "calls", CALLS)
            .with_columns(run_s, pl.when(pl.col("replayed")).then(0.0).otherwise(run_s).alias("computed_s"))
            .group_by("dialogue_id", *KEY, "engine", maintain_order=True)
            .agg(pl.col("run_s").sum(), pl.col("computed_s").sum())
        )
        computed = seconds.group_by("engine", maintain_order=True).agg(pl.col("computed_s").sum())
        self._computed_s: dict[str, float] = dict(computed.iter_rows())
        names = seconds["engine"].unique().to_list()
        rates = pl.DataFrame(
            {"engine": names, "rate": [self._usd_per_run_s(name) for name in names]},
            schema={"engine": pl.String, "rate": pl.Float64},
        )
        usd = pl.when(pl.col("run_s") > 0).then(pl.col("run_s") * pl.col("rate")).otherwise(0.0)
        self.seconds = seconds.join(rates, on="engine", how="left").with_columns(usd.alias("gpu_usd"))

    def _usd_per_run_s(self, engine: str) -> float | None:
        """Dollars that an engine's GPUs cost for a second of ``run_s``: in this run, else in the run it had them from.

        What this run computed is in its call log: rows of calls that an earlier session computed say ``replayed``.
        """
        usd = self._took(engine, "gpu_usd")
        logged_s = float(((self._record.get("paid") or {}).get(engine) or {}).get("run_s") or 0.0)
        run_s = max(logged_s, self._computed_s.get(engine, 0.0))
        gpu_hour = self._gpu_hour(engine)
        if run_s > 0 and (usd or not gpu_hour):
            return usd / run_s
        if not usd and not gpu_hour:
            return 0.0
        gpu_s = (self._record.get("source_gpu_s_per_run_s") or {}).get(engine)
        return None if gpu_s is None or not gpu_hour else float(gpu_s) * gpu_hour / 3600.0

    def _gpu_hour(self, engine: str) -> float:
        return float(((self._record.get("prices") or {}).get(engine) or {}).get("gpu_hour") or 0.0)

    def _took(self, engine: str, figure: str) -> float:
        return float((self._times.get(engine) or {}).get(figure) or 0.0)

    def total(self, figure: str) -> float:
        """Of all engines."""
        return sum(self._took(engine, figure) for engine in self._times)

    def share(self, calls: pl.DataFrame, figure: str) -> float:
        """What of the engines' ``figure`` falls to ``calls``, some rows of ``seconds``, by ``computed_s``."""
        import polars as pl

        shares = 0.0
        computed = calls.group_by("engine", maintain_order=True).agg(pl.col("computed_s").sum())
        for engine, computed_s in computed.iter_rows():
            if computed_s > 0:
                shares += self._took(engine, figure) * (computed_s / self._computed_s[engine])
        return shares

    def paid_gpu(self, calls: pl.DataFrame) -> float | None:
        """Dollars of the engines' GPUs for ``calls``; None where hours are priced that were not counted here."""
        import polars as pl

        engines = calls.filter(pl.col("computed_s") > 0)["engine"].unique()
        if any(self._gpu_hour(engine) and not self._took(engine, "gpu_usd") for engine in engines):
            return None
        return self.share(calls, "gpu_usd")


def replayed_calls(folder: RunFolder) -> dict[tuple[str, str], int]:
    """(method, cell) to how many of its calls a call log answered."""
    columns = ["method", "cell", "n_replayed"]
    counted = (
        read_table(folder.path, "dialogues", columns).group_by(["method", "cell"]).aggregate([("n_replayed", "sum")])
    )
    return {(r["method"], r["cell"]): int(r["n_replayed_sum"] or 0) for r in counted.to_pylist()}


def source_rates(identities: Mapping[str, Mapping[str, object]], sources: Iterable[str]) -> dict[str, float]:
    """GPU seconds for a second of ``run_s``, of those engines that one of the runs ``sources`` had and knows it of."""
    found: dict[str, float] = {}
    for source in sources:
        try:
            record = open_folder(source).read_json("run.json") or {}
        except StorageError:  # whoever needs its answers says so
            continue
        theirs = {_plain(identity): name for name, identity in (record.get("engine_identities") or {}).items()}
        for engine, identity in identities.items():
            name = theirs.get(_plain(identity))
            rate = None if name is None else _gpu_s_per_run_s(record, name)
            if rate is not None:
                found.setdefault(engine, rate)
    return found


def _plain(identity: Mapping[str, object]) -> bytes:
    return orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)


def _gpu_s_per_run_s(record: Mapping[str, Any], engine: str) -> float | None:
    gpu_s = ((record.get("engine_time") or {}).get(engine) or {}).get("gpu_s")
    run_s = ((record.get("paid") or {}).get(engine) or {}).get("run_s")
    if gpu_s and run_s:
        return float(gpu_s) / float(run_s)
    passed_on = (record.get("source_gpu_s_per_run_s") or {}).get(engine)
    return None if passed_on is None else float(passed_on)


def run_paid(folder: RunFolder) -> RunPaid | None:
    """What the whole run paid; None where it is not recorded, or an engine that was paid has no price."""
    record = folder.read_json("run.json") or {}
    if record.get("paid") is None:
        return None
    prices = record.get("prices") or {}
    tokens_usd = 0.0
    for engine, figures in record["paid"].items():
        if prices.get(engine) is None:
            return None
        price = Price.model_validate({name: prices[engine][name] for name in Price.model_fields})
        tokens_usd += price.of(Usage(*(int(figures.get(name) or 0) for name in TOKENS)))
    times = (record.get("engine_time") or {}).values()
    gpu_usd = sum(float(figures.get("gpu_usd") or 0.0) for figures in times)
    in_rows = sum(cost.paid_usd or 0.0 for cost in costs(folder).values())
    return RunPaid(tokens_usd, gpu_usd, max(0.0, tokens_usd + gpu_usd - in_rows))


def _frame(folder: RunFolder, table: str, columns: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(read_table(folder.path, table, columns).combine_chunks())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _dollars(group: pl.DataFrame, column: str, gpu_usd: float | None) -> float | None:
    """Dollars for tokens and GPU time together; None where one is not known, and where no call was answered."""
    import polars as pl

    ran = group.filter(pl.col("prompt_tokens") > 0)
    answered = any(group[figure].sum() for figure in ("prompt_tokens", "output_tokens", "run_s"))
    if gpu_usd is None or ran[column].null_count() or (group["n_calls"].sum() and not answered):
        return None
    return float(ran[column].sum()) + gpu_usd


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
    whole = run_paid(folder)
    return flat if whole is None else flat | {"run_paid_usd": whole.total_usd, "run_rowless_usd": whole.rowless_usd}
