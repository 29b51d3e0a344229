"""Belief states: upsert and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dialoom.state import DELETE, BeliefState, SlotRef

refs = st.builds(SlotRef, st.sampled_from("ab"), st.sampled_from("xyz"))
deltas = st.dictionaries(refs, st.sampled_from(["1", "2", DELETE]), max_size=6)


@given(deltas, deltas)
def test_upsert_sets_what_is_named_and_keeps_the_rest(before: dict[SlotRef, str], delta: dict[SlotRef, str]) -> None:
    state = BeliefState(before)
    after = state.upsert(delta)
    assert dict(after) == before | delta
    assert dict(state) == before
    assert after.upsert(delta) == after


@given(deltas, deltas)
def test_deletes_remove_their_slots_where_they_are_allowed(
    before: dict[SlotRef, str], delta: dict[SlotRef, str]
) -> None:
    clean = {ref: value for ref, value in before.items() if value != DELETE}
    after = BeliefState(clean).upsert(delta, deletes=True)
    assert dict(after) == {ref: value for ref, value in (clean | delta).items() if value != DELETE}


@given(deltas)
def test_states_are_equal_by_content(values: dict[SlotRef, str]) -> None:
    one, two = BeliefState(values), BeliefState(reversed(list(values.items())))
    assert one == two
    assert hash(one) == hash(two)
    assert one != values
    assert len(one) == len(values)


def test_one_service() -> None:
    state = BeliefState({SlotRef("a", "y"): "1", SlotRef("b", "x"): "2", SlotRef("a", "x"): "3"})
    assert list(state.of("a").items()) == [("y", "1"), ("x", "3")]
    assert state.of("c") == {}
    assert repr(state).startswith("BeliefState({SlotRef(")
