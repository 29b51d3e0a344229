"""The size of a job, and the part of it that is its sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.estimate import input_size, sample_job
from support.jobs import chat, small_plan

DIALOGUES = [chat(f"d{i}", *(["hello", "and", "bye"][: 1 + i % 3])) for i in range(40)]


def test_the_size_is_that_of_what_will_be_read(tmp_path: Path) -> None:
    whole = input_size(small_plan(tmp_path, [*DIALOGUES, b"{no record"]))
    assert (whole.dialogues, whole.user_turns, whole.bad_records) == (40, 79, 1)


@pytest.mark.parametrize(("stride", "limit", "dialogues"), [(1, 7, 7), (3, None, 14), (3, 5, 5), (13, 9, 4)])
def test_stride_and_limit_count(tmp_path: Path, stride: int, limit: int | None, dialogues: int) -> None:
    data = {"reader": "chat", "paths": "data.jsonl", "stride": stride, "limit": limit}
    plan = small_plan(tmp_path, DIALOGUES, data=data)
    size = input_size(plan)
    chosen = range(0, 40, stride)[:limit]
    assert size.dialogues == dialogues == len(chosen)
    assert size.user_turns == sum(1 + i % 3 for i in chosen)
    part = sample_job(plan, 4, tmp_path / "sample", size).options.data
    taken = range(0, 40, part.stride)[: part.limit]
    assert len(taken) == 4
    assert set(taken) <= set(chosen)
