"""The job's limits over a session's figures: which one ends it, when, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import LimitReached
from dialoom.job import LimitConfig
from dialoom.outcome import Outcome
from dialoom.runtime.ending import Ending
from dialoom.runtime.limits import ERRORS_COUNT_FROM, Limits
from dialoom.runtime.progress import Progress


def watch(**limits: Any) -> Limits:
    made = Limits(LimitConfig(**limits))
    made.begin(90.0)
    made.leased(100.0)
    return made


def progress(*, done: int = 0, failed: int = 0, **counts: float) -> Progress:
    made = Progress(done=done)
    made.outcomes[Outcome.INFRASTRUCTURE] = failed
    made.add(counts)
    return made


@given(limit=st.integers(1, 10**9), prompt=st.integers(0, 10**9), output=st.integers(0, 10**9))
def test_tokens_of_prompts_and_answers_count_together(limit: int, prompt: int, output: int) -> None:
    reached = watch(tokens=limit).reached(progress(prompt_tokens=prompt, output_tokens=output), 100.0)
    assert (reached is not None) == (prompt + output >= limit)
    if reached is not None:
        ending, error = reached
        assert ending is Ending.LIMIT
        assert isinstance(error, LimitReached)
        assert error.scope == "job"
        assert "limits.tokens" in str(error)
        assert "run the same command again" in error.hint


@pytest.mark.parametrize(
    ("limit", "earlier", "now", "says"),
    [
        (
            {"tokens": 100},
            {"prompt_tokens": 50, "output_tokens": 20},
            {"prompt_tokens": 20, "output_tokens": 10},
            "100 of",
        ),
        ({"cost_usd": 1.0}, {"cost_usd": 0.75}, {"cost_usd": 0.25}, "$1.0000 of $1"),
        ({"error_share": 0.5}, {"done": 15, "failed": 8}, {"done": 5, "failed": 3}, "11 of 20 units"),
    ],
)
def test_what_earlier_stages_did_counts_in_later_ones(
    limit: dict[str, Any], earlier: dict[str, Any], now: dict[str, Any], says: str
) -> None:
    limits = watch(**limit)
    assert limits.reached(progress(**earlier), 100.0) is None
    assert limits.reached(progress(**now), 100.0) is None
    limits.end_stage(progress(**earlier))
    limits.begin(105.0)
    reached = limits.reached(progress(**now), 105.0)
    assert reached is not None
    assert says in str(reached[1])


def test_time_goes_on_through_the_stages_of_a_session() -> None:
    limits = watch(wall_s=10.0, stall_s=1e6)
    limits.end_stage(progress(done=3))
    limits.begin(105.0)
    limits.leased(106.0)
    assert limits.reached(progress(), 109.9) is None
    assert limits.reached(progress(), 110.0) is not None


def test_a_budget_can_be_used_up_before_anything_is_handed_out() -> None:
    limits = Limits(LimitConfig(cost_usd=1.0, tokens=10, wall_s=1.0, stall_s=1.0))
    assert limits.spent(progress(), 100.0, 0.5) is None, "time and standstill count from the start of work"
    assert limits.spent(progress(), 100.0, 1.0) is not None
    limits.end_stage(progress(prompt_tokens=10))
    assert limits.spent(progress(), 100.0) is not None


def test_dollars_of_gpus_count_beside_those_of_tokens_stage_by_stage() -> None:
    limits = watch(cost_usd=1.0)
    limits.end_stage(progress(cost_usd=0.25), 0.25)
    assert limits.reached(progress(cost_usd=0.125), 100.0, 0.25) is None
    reached = limits.reached(progress(cost_usd=0.25), 100.0, 0.25)
    assert reached is not None
    assert "limits.cost_usd: $1.0000 of $1 are spent" in str(reached[1])


def test_wall_time_counts_from_the_first_lease() -> None:
    limits = watch(wall_s=10.0, stall_s=1e6)
    limits.leased(105.0)
    assert limits.reached(progress(), 109.9) is None
    reached = limits.reached(progress(), 110.0)
    assert reached is not None
    assert "limits.wall_s" in str(reached[1])


@pytest.mark.parametrize(
    ("done", "failed", "share", "ends"),
    [
        (ERRORS_COUNT_FROM - 1, ERRORS_COUNT_FROM - 1, 0.5, False),
        (ERRORS_COUNT_FROM, 10, 0.5, False),
        (ERRORS_COUNT_FROM, 11, 0.5, True),
        (1000, 1000, 1.0, False),
        (1000, 1000, None, False),
    ],
)
def test_the_share_of_errors_counts_from_some_units_on(done: int, failed: int, share: float, ends: bool) -> None:
    told = progress(done=done, failed=failed)
    told.last_error = "the connection failed"
    reached = watch(error_share=share).reached(told, 100.0)
    assert (reached is not None) == ends
    if reached is not None:
        assert reached[0] is Ending.LIMIT
        assert "limits.error_share" in str(reached[1])
        assert "the connection failed" in str(reached[1])


@pytest.mark.parametrize("moved", [{"calls": 1.0}, {"replayed": 1.0}, {"done": 1}])
def test_any_call_or_unit_is_progress(moved: dict[str, Any]) -> None:
    limits = watch(stall_s=10.0)
    assert limits.reached(progress(), 100.0) is None
    assert limits.reached(progress(), 109.0) is None
    assert limits.reached(progress(**moved), 109.5) is None
    assert limits.reached(progress(**moved), 119.0) is None
    reached = limits.reached(progress(**moved), 119.5)
    assert reached is not None
    assert reached[0] is Ending.STALLED


@pytest.mark.parametrize(
    ("trouble", "last_error", "says"),
    [
        ("results: no space", "other", "results: no space"),
        ("", "the engine is away", "the engine is away"),
        ("", "", "3 units wait"),
    ],
)
def test_a_standstill_says_why(trouble: str, last_error: str, says: str) -> None:
    told = progress()
    told.trouble, told.last_error, told.running = trouble, last_error, 3
    limits = watch(stall_s=5.0)
    assert limits.reached(told, 100.5) is None
    reached = limits.reached(told, 105.5)
    assert reached is not None
    assert says in str(reached[1])


def test_endings_decide_the_outcome_of_what_was_not_finished() -> None:
    assert Ending.LIMIT.outcome is Outcome.JOB_LIMIT
    assert Ending.STALLED.outcome is Outcome.JOB_LIMIT
    assert {e.outcome for e in Ending} == {Outcome.JOB_LIMIT, Outcome.INTERRUPTED}
    assert all(e.outcome.owed for e in Ending)


def test_units_handed_out_are_progress_too() -> None:
    limits = watch(stall_s=10.0)
    assert limits.reached(progress(), 105.0) is None
    limits.leased(112.0)
    assert limits.reached(progress(), 121.0) is None
    assert limits.reached(progress(), 122.0) is not None
