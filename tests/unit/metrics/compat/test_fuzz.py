"""String similarities against the published libraries' scores and against plain definitions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.metrics.compat.fuzz import (
    difflib_ratio,
    levenshtein_ratio,
    partial_ratio,
    sorted_tokens,
    token_sort_ratio,
)
from support.shared import shared_path


@pytest.mark.shared
def test_both_back_ends_equal_the_published_scores() -> None:
    pairs = json.loads(shared_path("golden", "sgd", "fuzzy_pairs.json").read_text())
    wrong = [
        p
        for p in pairs
        if token_sort_ratio(p["ref"], p["hyp"], difflib_ratio) != p["token_sort_ratio_difflib"]
        or token_sort_ratio(p["ref"], p["hyp"], levenshtein_ratio) != p["token_sort_ratio_levenshtein"]
    ]
    assert len(pairs) > 1000
    assert wrong == []


def test_the_back_ends_differ_where_they_should() -> None:
    pair = ("10th of this month", "10th of this omnth")
    assert token_sort_ratio(*pair, difflib_ratio) == 67
    assert token_sort_ratio(*pair, levenshtein_ratio) == 78


@pytest.mark.parametrize(
    ("first", "second", "score"),
    [("!!", "??", 100), ("", "", 100), ("a", "!", 0), ("Café", "caf", 100), ("b_c a", "A b_c", 100), ("Ā", "", 0)],
)
def test_edge_cases(first: str, second: str, score: int) -> None:
    assert token_sort_ratio(first, second) == score


def test_tokens_are_sorted_by_code_point() -> None:
    assert sorted_tokens("  Two-ONE  ünits_x ") == "nits_x one two"


def distance(first: str, second: str) -> int:
    """Edit distance with replacements at cost 2, by the textbook table."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (0 if a == b else 2))
    return row[-1]


@given(st.text("abcd ", max_size=80), st.text("abcde", max_size=80))
def test_levenshtein_ratio_is_the_textbook_distance(first: str, second: str) -> None:
    total = len(first) + len(second)
    expected = (total - distance(first, second)) / total if total else 1.0
    assert levenshtein_ratio(first, second) == pytest.approx(expected, abs=1e-12)


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=10))
def test_a_substring_matches_partially(before: str, inside: str, after: str) -> None:
    if inside and inside != before + inside + after:
        assert partial_ratio(inside, before + inside + after) == 100
        assert partial_ratio(before + inside + after, inside) == 100


def test_empty_never_matches_partially() -> None:
    assert partial_ratio("", "x") == 0
    assert partial_ratio("", "") == 100
    assert partial_ratio("1", "13:30") == 100
    assert partial_ratio("kitten", "sitting") < 95
