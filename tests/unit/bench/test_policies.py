"""The simulated engine behind the policy bench: every call runs once, and each policy does what its name says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.bench.policies import POLICIES, Chain, Policy, Setup, SimCall, ordered, simulate

SETUP = Setup(replicas=2, in_flight=2, cache_tokens=16 * 8, prompt_token_s=1.0, output_token_s=1.0)

blocks = st.lists(st.integers(0, 30), max_size=6).map(tuple)
chains = st.lists(
    st.builds(
        Chain,
        services=st.sampled_from([("a",), ("b",), ("a", "b")]),
        weight=st.integers(0, 9),
        calls=st.lists(st.builds(SimCall, blocks, st.integers(1, 5)), max_size=4).map(tuple),
    ),
    max_size=12,
)


def chain(*output_tokens: int, services: tuple[str, ...] = ("a",), blocks: Sequence[int] = ()) -> Chain:
    return Chain(services, sum(output_tokens), tuple(SimCall(tuple(blocks), n) for n in output_tokens))


@given(chains, st.sampled_from(sorted(POLICIES)))
def test_every_call_runs_once_under_every_policy(made: list[Chain], name: str) -> None:
    result = simulate(made, SETUP, POLICIES[name], window=5)
    calls = [c for each in made for c in each.calls]
    uncached = sum(len(c.blocks) for c in calls) - result.cached
    assert result.blocks == sum(len(c.blocks) for c in calls)
    assert result.busy_s == pytest.approx(sum(c.output_tokens for c in calls) + 16 * uncached)
    assert result.busy_s <= result.seconds * result.slots + 1e-9


@given(chains, st.sampled_from(sorted(POLICIES)), st.integers(1, 20))
def test_an_order_holds_every_dialogue_once(made: list[Chain], name: str, window: int) -> None:
    assert sorted(map(id, ordered(made, POLICIES[name], window))) == sorted(map(id, made))


def test_longest_first_leaves_no_long_dialogue_for_the_end() -> None:
    made = [*(chain(1, 1) for _ in range(40)), chain(*[1] * 20)]
    one = replace(SETUP, replicas=1)
    assert simulate(made, one, Policy()).seconds < simulate(made, one, Policy(order="read")).seconds


def test_a_sticky_dialogue_finds_its_own_prompt_again() -> None:
    made = [chain(1, 1, 1, 1, blocks=range(10 * i, 10 * i + 4)) for i in range(3)]
    assert simulate(made, SETUP, Policy()).cached == 36
    assert simulate(made, SETUP, Policy(sticky=False, least_loaded=False)).cached < 36


def test_a_full_cache_forgets_what_was_used_longest_ago() -> None:
    small = replace(SETUP, replicas=1, in_flight=1, cache_tokens=16 * 4)
    first, second = chain(1, blocks=(1, 2)), chain(1, blocks=(3, 4, 5))
    assert simulate([first, second, first], small, Policy(order="read")).cached == 0
    assert simulate([first, first, second], small, Policy(order="read")).cached == 2


def test_groups_keep_the_order_inside() -> None:
    made = [chain(1, services=("a",)), chain(2, services=("b",)), chain(3, services=("a",))]
    longest = [c.weight for c in ordered(made, Policy(grouped=True), 10)]
    assert longest == [3, 1, 2]
    assert [c.weight for c in ordered(made, Policy(order="read", grouped=True), 10)] == [1, 3, 2]
