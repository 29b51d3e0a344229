"""The bound of a prefix cache: what an unbounded one would serve."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dialoom.calls import cacheable, prefix_bound
from support.jobs import SCRIPTED
from support.runs import finished_folder

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=24), max_size=8)


def test_only_whole_blocks_after_an_equal_beginning_count() -> None:
    seen: set[bytes] = set()
    assert cacheable(list(range(10)), 4, seen) == 0
    assert cacheable([*range(8), 99, 98], 4, seen) == 8
    assert cacheable([*range(4), 7, 7, 7, 7, 8], 4, seen) == 4
    assert cacheable([1, *range(4, 12)], 4, seen) == 0


def test_the_last_token_is_always_computed() -> None:
    seen: set[bytes] = set()
    cacheable(list(range(8)), 4, seen)
    assert cacheable(list(range(8)), 4, seen) == 4


@given(PROMPTS, st.integers(1, 5))
def test_the_bound_equals_a_search_through_all_earlier_prompts(prompts: list[list[int]], block: int) -> None:
    seen: set[bytes] = set()
    for number, prompt in enumerate(prompts):
        best = 0
        for earlier in prompts[:number]:
            same = 0
            while same < min(len(earlier), len(prompt)) and earlier[same] == prompt[same]:
                same += 1
            whole_in_earlier = len(earlier) - len(earlier) % block
            best = max(best, min(same, whole_in_earlier) // block * block)
        limit = max(0, (len(prompt) - 1) // block * block)
        assert cacheable(prompt, block, seen) == min(best, limit)


def test_engines_that_cells_of_a_sweep_make_have_a_bound_too(tmp_path: Path) -> None:
    engine = SCRIPTED | {"use": "support.counted_engine:PLUGIN"}
    sweep = {"grid": {"engines.main.model": ["a", "b"]}}
    folder = finished_folder(tmp_path, engines={"main": engine}, sweep=sweep)
    assert [b.engine for b in prefix_bound(folder, 16)] == ["main", "main-2"]
