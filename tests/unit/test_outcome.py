"""The outcome table of the documentation is the one of the code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dialoom.outcome import Outcome, worst

SCORED = {"accepted", "corrected", "fallback", "not_parsable", "prompt_too_long", "unit_limit"}
OWED = {"infrastructure", "job_limit", "interrupted"}


def test_what_is_scored_and_what_is_owed() -> None:
    assert {o.value for o in Outcome if o.scored} == SCORED
    assert {o.value for o in Outcome if o.owed} == OWED
    assert {o.value for o in Outcome} - SCORED - OWED == {"bad_input"}


@given(st.lists(st.sampled_from(Outcome)))
def test_the_worst_is_one_of_them_and_order_does_not_matter(outcomes: list[Outcome]) -> None:
    found = worst(outcomes)
    assert found is worst(reversed(outcomes))
    assert found in (outcomes or [Outcome.ACCEPTED])
    assert not (found.scored and any(not o.scored for o in outcomes))


def test_worst() -> None:
    assert worst([]) is Outcome.ACCEPTED
    assert worst([Outcome.CORRECTED, Outcome.ACCEPTED]) is Outcome.CORRECTED
    assert worst([Outcome.FALLBACK, Outcome.UNIT_LIMIT, Outcome.CORRECTED]) is Outcome.UNIT_LIMIT
