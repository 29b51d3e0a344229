"""Which dialogue ends its worker: quarantine finds those that do, and clears those that only stood by."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dialoom.outcome import Outcome
from dialoom.runtime.suspects import COMPANY, Suspects
from dialoom.runtime.worker import Lease
from dialoom.unit import UnitKey


def lease(number: int) -> Lease:
    return Lease(b"{}", (UnitKey(f"d{number}", "m", "", 0),), "hash")


def name(of: Lease) -> str:
    return of.units[0].dialogue_id


@given(n=st.integers(1, 60), poison=st.sets(st.integers(0, 59), max_size=6), seed=st.integers(0, 2**32))
def test_the_guilty_and_only_the_guilty_are_found(n: int, poison: set[int], seed: int) -> None:
    """As the driver plays it: batches to workers at random; a worker with a poison dialogue is lost with all it holds,
    or after it has finished some of them."""
    rng = random.Random(seed)
    suspects = Suspects()
    free = [lease(i) for i in range(n)]
    done: set[str] = set()
    guilty: list[Lease] = []
    losses = 0
    while free or suspects:
        batch = [free.pop() for _ in range(min(len(free), rng.randint(1, 16)))] or suspects.take()
        assert batch, "something waits and nothing is handed out"
        bad = [b for b in batch if b.close is None and int(name(b)[1:]) in poison]
        if not bad:
            done |= {name(b) for b in batch if b.close is None}
            guilty += [b for b in batch if b.close is not None]
            continue
        losses += 1
        finished = [b for b in batch if b not in bad and b.close is None and rng.random() < 0.3]
        done |= {name(b) for b in finished}
        again, found = suspects.sort([b for b in batch if b not in finished], "it died")
        free += [*again, *found]
    assert {int(name(g)[1:]) for g in guilty} == {p for p in poison if p < n}
    assert len(done) == n - len(guilty)
    assert losses <= 6 * max(1, len(poison))
    for g in guilty:
        assert g.close is Outcome.INFRASTRUCTURE
        assert g.reason is not None
        assert g.reason.kind == "poison"
        assert "it died" in str(g.reason)


def test_one_loss_makes_nobody_suspect() -> None:
    suspects = Suspects()
    free, guilty = suspects.sort([lease(i) for i in range(5)], "x")
    assert ([f.losses for f in free], guilty, len(suspects)) == ([1] * 5, [], 0)


def test_suspects_run_in_small_company_and_then_alone() -> None:
    suspects = Suspects()
    free, _ = suspects.sort([lease(i) for i in range(20)], "x")
    free, _ = suspects.sort(free, "x")
    assert (free, len(suspects)) == ([], 20)
    company = suspects.take()
    assert len(company) == COMPANY
    suspects.sort(company, "x")
    assert len(suspects.take()) == 1


def test_a_row_that_only_has_to_be_written_is_never_suspect() -> None:
    closed = Lease(b"{}", (UnitKey("d", "m", "", 0),), "hash", close=Outcome.INTERRUPTED, losses=7)
    suspects = Suspects()
    free, guilty = suspects.sort([closed], "x")
    assert [f.close for f in free] == [Outcome.INTERRUPTED]
    assert (guilty, len(suspects)) == ([], 0)
