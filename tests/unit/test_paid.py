"""What a run paid, from its own call log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dialoom.calls import prune
from dialoom.engine import Response
from dialoom.errors import RequestRefused, RunRefused
from dialoom.paid import paid_usage
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.folder import RunFolder
from dialoom.traces.tables import CALLS, columns
from dialoom.usage import Usage


def digest(number: int) -> bytes:
    return number.to_bytes(16, "little")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two sessions that paid call 1 both, engine ``b`` once, and met a refusal; the rows hold call 1 alone."""
    made = RunFolder(tmp_path / "run")
    made.make()
    for epoch, engine, numbers in ((1, "a", [1, 2]), (2, "a", [1]), (2, "b", [3])):
        log = CallLog(made, f"{made.next_epoch():05d}-w{epoch}")
        for number in numbers:
            vectors = ((0.5,),) if number == 2 else ()
            log.append(digest(number), Response("yes", Usage(10, 4, 2, 1, 0.5, 0.25), vectors=vectors), engine)
        log.refuse(digest(9), RequestRefused("no"))
        log.write()
    made.next_epoch()
    row = {"dialogue_id": "d", "method": "m", "cell": "", "trial": 0, "turn": 0, "call": 0, "digest": digest(1).hex()}
    pq.write_table(pa.Table.from_batches([columns(CALLS, [row])]), made.traces / "calls.parquet")
    made.put_json("run.json", {"status": "complete"})
    return made


ONCE = {"calls": 1, "prompt_tokens": 10, "cached_tokens": 4, "output_tokens": 2, "reasoning_tokens": 1, "run_s": 0.25}
PAID = {"a": {name: 3 * figure for name, figure in ONCE.items()}, "b": ONCE}


def test_every_record_was_paid_once_by_the_engine_it_names(folder: RunFolder) -> None:
    assert paid_usage(folder) == PAID


def test_a_run_that_is_not_complete_is_not_pruned(folder: RunFolder) -> None:
    """Its traces do not have all calls yet."""
    before = folder.sizes("calls", ".calls")
    folder.put_json("run.json", {"status": "stopped"})
    with pytest.raises(RunRefused, match="not complete"):
        prune(folder)
    assert folder.sizes("calls", ".calls") == before


def test_pruning_forgets_answers_and_no_payment(folder: RunFolder) -> None:
    assert prune(folder)[1] > 0
    assert paid_usage(folder) == PAID
    log = CallLog(folder, f"{folder.next_epoch():05d}-w0")
    log.append(digest(7), Response("more", Usage(10, 4, 2, 1, 0.5, 0.25)), "b")
    log.write()
    assert paid_usage(folder) == PAID | {"b": {name: 2 * figure for name, figure in ONCE.items()}}
    assert prune(folder) == (2, 1)
    assert paid_usage(folder)["b"]["calls"] == 2


def test_a_prune_that_was_cut_short_counts_nothing_twice(folder: RunFolder) -> None:
    segments = {name: folder.read(name) or b"" for name in folder.names("calls", ".calls")}
    prune(folder)
    for name, data in segments.items():
        folder.put(name, data)
    assert paid_usage(folder) == PAID


def test_an_answer_of_an_unnamed_engine_is_counted_apart(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "old")
    made.make()
    log = CallLog(made, "00001-w0")
    log.append(digest(1), Response("yes", Usage(10, 4, 2, 1, 0.5, 0.25)))
    log.write()
    assert paid_usage(made) == {"": ONCE}
