"""What a run cost: tokens and the GPUs of each engine, attributed and paid, by method and cell and as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialoom.costs import Cost, attributed_sums, costs, run_costs, run_paid, source_rates
from dialoom.prices import Price, price_record
from dialoom.runtime.folder import RunFolder
from dialoom.traces.tables import CALLS, DIALOGUES, columns

PRICES = {"small": Price(gpu_hour=2.0), "large": Price(gpu_hour=2.0), "hosted": Price(input=1.0, output=1.0)}
TIMES = {
    "small": {"replica_s": 3600.0, "gpu_s": 3600.0, "gpu_usd": 2.0},
    "large": {"replica_s": 3600.0, "gpu_s": 7200.0, "gpu_usd": 4.0},
    "hosted": {"replica_s": 0.0, "gpu_s": 0.0, "gpu_usd": 0.0},
}
"""An hour of an engine with one GPU, of one with two, and a vendor's."""


class Call(NamedTuple):
    """One call of a unit of its own; ``tokens`` prompt tokens."""

    cell: str
    engine: str
    run_s: float
    replayed: bool = False
    tokens: int = 1_000_000


def write(path: Path, calls: Sequence[Call], **record: Any) -> RunFolder:
    """A run folder with these calls; those of the same place in their cell are of the same dialogue."""
    folder = RunFolder(path)
    folder.make()
    units, rows, numbers = [], [], dict.fromkeys((c.cell for c in calls), 0)
    for c in calls:
        numbers[c.cell] += 1
        key = {"dialogue_id": f"d{numbers[c.cell]}", "method": "m", "cell": c.cell, "trial": 0}
        usd = c.tokens / 1e6 if c.engine == "hosted" else 0.0
        units.append({
            **key, "outcome": "accepted", "n_calls": 1, "prompt_tokens": c.tokens, "output_tokens": 0, "run_s": c.run_s,
            "cost_attributed_usd": usd, "cost_paid_usd": 0.0 if c.replayed else usd,
        })  # fmt: skip
        rows.append({
            **key, "turn": 0, "call": 0, "digest": "", "engine": c.engine, "replayed": c.replayed, "run_s": c.run_s,
        })  # fmt: skip
    for table, schema, found in (("dialogues", DIALOGUES, units), ("calls", CALLS, rows)):
        pq.write_table(pa.Table.from_batches([columns(schema, found)]), path / f"traces/{table}.parquet")
    prices = {name: price_record(name, PRICES) for name in PRICES}
    folder.put_json("run.json", {"engine_time": TIMES, "prices": prices} | record)
    return folder


def cell_costs(path: Path, calls: Sequence[Call], **record: Any) -> Mapping[str, Cost]:
    return {cell: cost for (_, cell), cost in costs(write(path, calls, **record)).items()}


def test_every_engine_is_paid_by_the_cells_that_used_it(tmp_path: Path) -> None:
    found = cell_costs(tmp_path, [Call("a", "small", 30.0), Call("b", "large", 30.0), Call("c", "hosted", 300.0)])
    assert {cell: cost.paid_usd for cell, cost in found.items()} == {"a": 2.0, "b": 4.0, "c": 1.0}
    assert {cell: cost.attributed_usd for cell, cost in found.items()} == {"a": 2.0, "b": 4.0, "c": 1.0}
    assert {cell: cost.engine_s for cell, cost in found.items()} == {"a": 3600.0, "b": 3600.0, "c": 0.0}


def test_a_replayed_call_is_attributed_at_its_seconds_and_not_paid(tmp_path: Path) -> None:
    found = cell_costs(tmp_path, [Call("a", "small", 30.0), Call("b", "small", 30.0, True), Call("b", "small", 10.0)])
    assert found["a"].paid_usd == pytest.approx(2.0 * 30 / 40)
    assert found["b"].paid_usd == pytest.approx(2.0 * 10 / 40)
    assert found["a"].attributed_usd == pytest.approx(2.0 / 40 * 30)
    assert found["b"].attributed_usd == pytest.approx(2.0 / 40 * 40)


def test_a_rerun_that_replays_its_own_calls_costs_no_more(tmp_path: Path) -> None:
    calls = [Call("a", "small", 90.0, True), Call("a", "small", 10.0)]
    found = cell_costs(tmp_path, calls, paid={"small": {"calls": 2, "run_s": 100.0}})
    assert found["a"].attributed_usd == pytest.approx(2.0)
    assert found["a"].paid_usd == pytest.approx(2.0)


@pytest.mark.parametrize(("known", "usd"), [({}, None), ({"small": 36.0}, 0.6)])
def test_what_was_all_replayed_has_the_rate_of_its_source_or_none(
    tmp_path: Path, known: Mapping[str, float], usd: float | None
) -> None:
    found = cell_costs(tmp_path, [Call("a", "small", 30.0, True)], engine_time={}, source_gpu_s_per_run_s=known)
    assert found["a"].attributed_usd == (None if usd is None else pytest.approx(usd))
    assert found["a"].paid_usd == 0.0


def test_the_rate_of_a_source_is_that_of_the_same_engine(tmp_path: Path) -> None:
    small, other = {"engine": "vllm", "model": "small"}, {"engine": "vllm", "model": "other"}
    made = write(tmp_path / "made", [], engine_identities={"e": small}, engine_time={"e": TIMES["large"]},
                 paid={"e": {"run_s": 200.0}})  # fmt: skip
    assert source_rates({"mine": small, "new": other}, [str(made)]) == {"mine": 36.0}
    replay = write(tmp_path / "replay", [], engine_identities={"r": small}, source_gpu_s_per_run_s={"r": 36.0},
                   engine_time={"r": TIMES["hosted"]}, paid={})  # fmt: skip
    assert source_rates({"mine": small}, [str(tmp_path / "gone"), str(replay)]) == {"mine": 36.0}


def test_hours_that_are_priced_and_not_counted_are_no_zero(tmp_path: Path) -> None:
    found = cell_costs(tmp_path, [Call("a", "small", 30.0)], engine_time={})
    assert found["a"].paid_usd is found["a"].attributed_usd is None


def test_a_cell_that_got_no_answer_has_no_cost(tmp_path: Path) -> None:
    found = cell_costs(tmp_path, [Call("a", "hosted", 1.0), Call("b", "hosted", 0.0, tokens=0)])
    assert found["a"].attributed_usd == found["a"].paid_usd == 1.0
    assert found["b"].attributed_usd is found["b"].paid_usd is None
    assert attributed_sums(RunFolder(tmp_path))["m", "b"] is None


def test_what_the_rows_do_not_hold_is_paid_all_the_same(tmp_path: Path) -> None:
    log = {
        "hosted": {"calls": 3, "prompt_tokens": 3_000_000, "run_s": 9.0},
        "small": {"calls": 1, "prompt_tokens": 5, "run_s": 30.0},
    }
    folder = write(tmp_path, [Call("a", "hosted", 3.0), Call("a", "hosted", 3.0, True), Call("b", "small", 30.0)])
    assert run_paid(folder) is None
    folder.put_json("run.json", (folder.read_json("run.json") or {}) | {"paid": log})
    found = run_paid(folder)
    assert found is not None
    assert (found.tokens_usd, found.gpu_usd, found.total_usd) == (3.0, 6.0, 9.0)
    assert found.rowless_usd == pytest.approx(2.0 + 4.0)  # two of the vendor's answers, and the engine without a call
    assert run_costs(folder)["run_paid_usd"] == 9.0
    folder.put_json("run.json", (folder.read_json("run.json") or {}) | {"prices": {"small": None}})
    assert run_paid(folder) is None


calls_made = st.lists(
    st.builds(
        Call,
        st.sampled_from("ab"),
        st.sampled_from(["small", "large", "hosted"]),
        st.floats(0.01, 1e3),
        st.booleans(),
        st.just(1_000_000),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(calls_made)
def test_paid_adds_up_to_the_dollars_of_the_engines(calls: Sequence[Call]) -> None:
    with TemporaryDirectory() as path:
        folder = write(Path(path), calls)
        found, sums = costs(folder), attributed_sums(folder)
    used = {c.engine for c in calls if not c.replayed}
    tokens = sum(c.engine == "hosted" and not c.replayed for c in calls)
    paid = sum(cost.paid_usd or 0.0 for cost in found.values())
    assert paid == pytest.approx(sum(TIMES[e]["gpu_usd"] for e in used) + tokens)
    for (_, cell), cost in found.items():
        unknown = any(c.cell == cell and c.engine != "hosted" and c.engine not in used for c in calls)
        assert (cost.attributed_usd is None) == unknown
        by_dialogue = sums["m", cell]
        assert (by_dialogue is None) == unknown
        if cost.attributed_usd is not None and by_dialogue is not None:
            assert cost.attributed_usd == pytest.approx(by_dialogue[0].sum())
            assert cost.dialogues == by_dialogue[1].sum()


def test_without_replays_both_costs_are_one(tmp_path: Path) -> None:
    found = cell_costs(tmp_path, [Call("a", "small", 3.0), Call("b", "small", 5.0), Call("b", "large", 7.0)])
    for cost in found.values():
        assert cost.paid_usd == pytest.approx(cost.attributed_usd)
