"""Prices: what tokens cost, and which price is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import JobError
from dialoom.prices import Price, find_price, list_prices
from dialoom.usage import Usage


def test_every_kind_of_token_has_its_own_price() -> None:
    price = Price(input=2.0, cached_input=0.5, output=8.0, reasoning=10.0)
    usage = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000, reasoning_tokens=30_000)
    assert price.of(usage) == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.07 * 8.0 + 0.03 * 10.0)


def test_cached_and_reasoning_tokens_fall_back_to_input_and_output() -> None:
    usage = Usage(prompt_tokens=10, cached_tokens=10, output_tokens=10, reasoning_tokens=10)
    assert Price(input=1.0, output=3.0).of(usage) == pytest.approx(40e-6)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_costs_add_up_over_calls(prompt: int, output: int, cached: float, reasoning: float) -> None:
    price = Price(input=2.0, cached_input=0.2, output=8.0)
    usage = Usage(prompt, int(prompt * cached), output, int(output * reasoning))
    assert price.of(usage + usage) == pytest.approx(2 * price.of(usage))
    assert price.of(usage) >= 0


def test_the_table_is_dated_and_a_job_overrides_it() -> None:
    date, table = list_prices()
    assert date.count("-") == 2
    name = next(iter(table))
    assert find_price(name, {}) == table[name]
    assert find_price(name, {name: Price(input=9.0)}).input == 9.0


def test_an_unknown_price_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(JobError, match=r"Did you mean 'gpt-4\.1-mini'"):
        find_price("gpt-4.1-mni", {})
