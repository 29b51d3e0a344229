"""The feed: every record becomes units once, longest first, in flat memory."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.errors import BadInput, DataError
from dialoom.outcome import Outcome
from dialoom.runtime import feed as feed_module
from dialoom.runtime.feed import Feed
from dialoom.runtime.index import Index
from dialoom.runtime.plan import Plan
from dialoom.runtime.worker import Lease
from dialoom.unit import UnitKey
from support.jobs import TINY, small_plan

Item = Dialogue | BadInput


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return small_plan(tmp_path)


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.close()


def dialogue(dialogue_id: str, text: str = "hi", **more: Any) -> Dialogue:
    return Dialogue(dialogue_id, (Turn(Speaker.USER, text),), source=f"file:{dialogue_id}", **more)


def bad(dialogue_id: str, what: str = "is broken") -> BadInput:
    return BadInput(dialogue_id, f"file:{dialogue_id}", what)


def test_what_is_done_is_passed_over_a_little_at_a_time(
    plan: Plan, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that goes on may have millions of dialogues behind it: the driver's loop is not held up for all of them."""
    monkeypatch.setattr(feed_module, "READ_AHEAD_S", 0.0)
    items = [dialogue(f"d{i}") for i in range(20)]
    first = Feed(plan, iter(items[:19]), index)
    done = [(key, lease.content_hash, Outcome.ACCEPTED) for lease in everything(first) for key in lease.units]
    again = Index()
    again.record(done)
    feed = Feed(plan, iter(items), again)
    assert feed.take(5) == []
    assert feed.read < 5
    assert (feed.searching, feed.empty) == (True, False)
    assert feed.owes()
    assert [lease.units[0].dialogue_id for lease in everything(feed)] == ["d19"]
    again.begin_read()
    assert not Feed(plan, iter(items[:19]), again).owes()
    assert (feed.searching, feed.empty) == (False, True)
    again.close()


def everything(feed: Feed, n_units: int = 3) -> list[Lease]:
    leases: list[Lease] = []
    while not feed.empty:
        leases += feed.take(n_units)
    return leases


def ids(leases: Sequence[Lease]) -> list[str]:
    return [lease.units[0].dialogue_id for lease in leases]


def content(lease: Lease) -> Dialogue:
    assert isinstance(lease.dialogue, bytes)
    return Dialogue.from_json(lease.dialogue)


def test_a_lease_holds_the_dialogue_and_its_units(plan: Plan, index: Index) -> None:
    item = dialogue("d", "a\0b 😀", services=("s",), extra={"x": 1})
    (lease,) = everything(Feed(plan, iter([item]), index))
    assert content(lease) == item
    assert lease.units == (UnitKey("d", "tiny"),)
    assert lease.content_hash == item.content_hash()


def test_the_longest_of_the_window_go_first_and_bad_input_last(plan: Plan, index: Index) -> None:
    lengths = random.Random(0).sample(range(1000), 50)
    items: list[Item] = [dialogue(str(n), "x" * n) for n in lengths]
    items.insert(20, bad("broken"))
    leases = everything(Feed(plan, iter(items), index))
    assert ids(leases) == [*map(str, sorted(lengths, reverse=True)), "broken"]


def test_a_small_window_still_hands_out_everything(plan: Plan, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "WINDOW", 3)
    items = [dialogue(str(n), "x" * n) for n in range(20)]
    assert sorted(map(int, ids(everything(Feed(plan, iter(items), index), 1)))) == list(range(20))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "a~2", "c\ud800"]), st.booleans(), st.sampled_from("xyz"))))
def test_every_record_becomes_one_unit_with_an_id_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, bool, str]]
) -> None:
    plan = small_plan(tmp_path_factory.getbasetemp() / "feed")
    index = Index()
    items: list[Item] = [dialogue(i, text) if good else bad(i) for i, good, text in records]
    feed = Feed(plan, iter(items), index)
    found = ids(everything(feed))
    index.close()
    assert len(found) == len(set(found)) == len(records) == feed.read
    for name in found:
        name.encode()


def test_a_repeated_id_is_a_bad_input_that_says_so(plan: Plan, index: Index) -> None:
    items = [dialogue("d", "first"), dialogue("d", "second"), dialogue("d", "first")]
    by_id = {lease.units[0].dialogue_id: lease.dialogue for lease in everything(Feed(plan, iter(items), index))}
    assert sorted(by_id) == ["d", "d~2", "d~3"]
    assert content(Lease(by_id["d"], (), "")).turns[0].text == "first"
    for name in ("d~2", "d~3"):
        repeated = by_id[name]
        assert isinstance(repeated, BadInput)
        assert repeated.what == "dialogue id 'd' was read before"
        assert repeated.where == "file:d"


def test_done_units_are_left_out_and_counted(tmp_path: Path, index: Index) -> None:
    plan = small_plan(tmp_path, methods=[TINY, TINY | {"name": "two"}])
    items = [dialogue("done"), dialogue("half"), dialogue("changed", "new"), dialogue("fresh")]
    old = dialogue("changed", "old").content_hash()
    index.record((k, items[0].content_hash(), Outcome.FALLBACK) for k in plan.units("done"))
    index.record([(UnitKey("half", "two"), items[1].content_hash(), Outcome.ACCEPTED)])
    index.record([(UnitKey("half", "tiny"), items[1].content_hash(), Outcome.INTERRUPTED)])
    index.record((k, old, Outcome.ACCEPTED) for k in plan.units("changed"))
    feed = Feed(plan, iter(items), index)
    units = {k for lease in everything(feed) for k in lease.units}
    assert units == {UnitKey("half", "tiny"), *plan.units("changed"), *plan.units("fresh")}
    assert (feed.read, feed.units_read, feed.skipped) == (4, 8, 3)
    assert feed.ended
    assert feed.empty


def test_bad_input_is_not_read_again_until_it_changes(plan: Plan, index: Index) -> None:
    (lease,) = everything(Feed(plan, iter([bad("x")]), index))
    index.record((k, lease.content_hash, Outcome.BAD_INPUT) for k in lease.units)
    again, changed = Index(), Index()
    for copy in (again, changed):
        copy.record((k, lease.content_hash, Outcome.BAD_INPUT) for k in lease.units)
    assert everything(Feed(plan, iter([bad("x")]), again)) == []
    assert len(everything(Feed(plan, iter([bad("x", "is broken elsewhere")]), changed))) == 1
    again.close()
    changed.close()


def test_what_a_lost_worker_held_comes_first_without_what_is_done(plan: Plan, index: Index) -> None:
    feed = Feed(plan, iter([dialogue(str(n), "x" * n) for n in range(6)]), index)
    first = feed.take(3)
    index.record([(first[0].units[0], first[0].content_hash, Outcome.ACCEPTED)])
    feed.give_back(first)
    assert not feed.empty
    assert set(ids(feed.take(2))) == set(ids(first[1:]))
    assert ids(everything(feed)) == ["2", "1", "0"]


def test_the_number_of_units_is_met_by_whole_dialogues(tmp_path: Path, index: Index) -> None:
    plan = small_plan(tmp_path, trials=3)
    feed = Feed(plan, iter([dialogue(str(n)) for n in range(4)]), index)
    assert [len(lease.units) for lease in feed.take(4)] == [3, 3]
    assert feed.take(0) == []
    assert len(everything(feed)) == 2


def test_the_limit_counts_records(tmp_path: Path, index: Index) -> None:
    plan = small_plan(tmp_path, data={"reader": "chat", "paths": "data.jsonl", "limit": 2})
    items: list[Item] = [bad("a"), dialogue("b"), dialogue("c")]
    feed = Feed(plan, iter(items), index)
    assert ids(everything(feed)) == ["b", "a"]
    assert feed.ended


def test_what_remains_is_what_was_read(plan: Plan, index: Index) -> None:
    def items() -> Iterator[Item]:
        yield from (dialogue(str(n)) for n in range(5))
        raise AssertionError("read further than asked for")

    feed = Feed(plan, items(), index)
    assert [feed.empty, len(feed.remaining()), feed.empty] == [False, 1, True]
    assert feed.take(5) == []


def test_a_reader_that_fails_is_heard_once(plan: Plan, index: Index) -> None:
    def items() -> Iterator[Item]:
        yield dialogue("d")
        raise DataError("the reader failed")

    feed = Feed(plan, items(), index)
    with pytest.raises(DataError, match="the reader failed"):
        feed.take(10)
    assert ids(feed.remaining()) == ["d"]


def test_the_window_is_bounded_by_bytes(plan: Plan, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 256 << 10
    monkeypatch.setattr(feed_module, "WINDOW_BYTES", limit)
    monkeypatch.setattr(feed_module, "READ_AHEAD_S", 60.0)
    each = 8 << 10

    def items() -> Iterator[Item]:
        for n in range(2000):
            yield dialogue(str(n), os.urandom(each // 2).hex())  # does not compress below half

    feed = Feed(plan, items(), index)
    tracemalloc.start()
    taken = 0
    while leases := feed.take(5):
        taken += len(leases)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken == 2000
    assert peak < 6 * limit
    assert 2000 * each > 40 * limit
