"""The feed where ids come twice: a row for every record, and the first dialogue of an id that can be read is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.errors import BadInput
from dialoom.job import load_job
from dialoom.outcome import Outcome
from dialoom.runtime.feed import Feed
from dialoom.runtime.index import Index
from dialoom.runtime.plan import Plan, make_plan
from dialoom.runtime.worker import Lease
from support.shared import ROOT

JOB = f"""\
name: ids
data: {{reader: chat, paths: log.jsonl}}
schema: {{path: {ROOT / "schemas" / "sample.yaml"}}}
methods: ["support.tiny_method:PLUGIN"]
engines: {{main: {{use: scripted, answers: answers.jsonl}}}}
"""

Item = Dialogue | BadInput


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.yaml").write_text(JOB)
    (folder / "log.jsonl").write_text('{"turns": [{"role": "user", "text": "hi"}]}\n')
    (folder / "answers.jsonl").write_text('{"text": "yes"}\n')
    return make_plan(*load_job(folder / "job.yaml"))


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.close()


def good(dialogue_id: str, text: str = "hi") -> Dialogue:
    return Dialogue(dialogue_id, (Turn(Speaker.USER, text),), source=f"log.jsonl:{text}")


def bad(dialogue_id: str, what: str = "broken") -> BadInput:
    return BadInput(dialogue_id, "log.jsonl:1", what, content_hash=f"hash of {what}")


def leases(plan: Plan, index: Index, items: Iterable[Item]) -> dict[str, Lease]:
    """By the id of their unit, everything that is handed out."""
    taken = Feed(plan, iter(items), index).take(1000)
    found = {lease.units[0].dialogue_id: lease for lease in taken}
    assert len(found) == len(taken)
    return found


def body(lease: Lease) -> Item:
    return lease.dialogue if isinstance(lease.dialogue, BadInput) else Dialogue.from_json(lease.dialogue)


def what(lease: Lease) -> str:
    """The fault of a bad input, the text of a dialogue."""
    item = body(lease)
    return item.what if isinstance(item, BadInput) else item.turns[0].text


def test_a_good_dialogue_is_run_though_a_bad_record_had_its_id(plan: Plan, index: Index) -> None:
    found = leases(plan, index, [bad("a"), good("a"), good("b")])
    assert {name: what(lease) for name, lease in found.items()} == {"a": "broken", "a~2": "hi", "b": "hi"}
    run = body(found["a~2"])
    assert isinstance(run, Dialogue)
    assert run.dialogue_id == "a~2"
    assert found["a~2"].content_hash == run.content_hash()


def test_the_second_good_dialogue_of_an_id_is_reported(plan: Plan, index: Index) -> None:
    found = leases(plan, index, [bad("a"), good("a"), good("a", "again"), good("a", "and again")])
    assert [what(found[name]) for name in ("a", "a~2")] == ["broken", "hi"]
    for name in ("a~3", "a~4"):
        assert what(found[name]) == "dialogue id 'a' was read before"


def test_a_bad_record_keeps_its_own_fault_under_a_free_id(plan: Plan, index: Index) -> None:
    found = leases(plan, index, [good("a"), bad("a", "one"), bad("a", "two"), good("a")])
    assert {name: what(lease) for name, lease in found.items()} == {
        "a": "hi",
        "a~2": "one",
        "a~3": "two",
        "a~4": "dialogue id 'a' was read before",
    }
    assert found["a~2"].content_hash == "hash of one"


def test_a_name_that_is_taken_is_not_given_again(plan: Plan, index: Index) -> None:
    items: list[Item] = [
        good("a~2", "its own"),
        bad("a"),
        good("a"),
        bad("a~3", "late"),
        good("a~3", "mine"),
        good("a~3", "more"),
    ]
    found = leases(plan, index, items)
    assert {name: what(lease) for name, lease in found.items()} == {
        "a~2": "its own",
        "a": "broken",
        "a~3": "hi",
        "a~3~2": "late",
        "a~3~3": "mine",
        "a~3~4": "dialogue id 'a~3' was read before",
    }


def test_a_rerun_owes_nothing(plan: Plan, index: Index) -> None:
    items: list[Item] = [bad("a"), good("a"), bad("a", "two"), good("a", "again")]
    first = leases(plan, index, items)
    rerun = Index()
    try:
        for lease in first.values():
            outcome = Outcome.BAD_INPUT if isinstance(lease.dialogue, BadInput) else Outcome.ACCEPTED
            rerun.record((key, lease.content_hash, outcome) for key in lease.units)
        feed = Feed(plan, iter(items), rerun)
        assert feed.take(1000) == []
        assert (feed.skipped, feed.read) == (4, 4)
    finally:
        rerun.close()


ITEMS = st.lists(st.tuples(st.sampled_from(["a", "b", "a~2", "a~2~2", "\ud800"]), st.booleans()), max_size=12)


@given(ITEMS)
def test_every_record_has_one_row_and_the_first_good_one_of_an_id_is_run(
    plan: Plan, drawn: list[tuple[str, bool]]
) -> None:
    items: list[Item] = [
        good(i, f"text {n}") if is_good else bad(i, f"fault {n}") for n, (i, is_good) in enumerate(drawn)
    ]
    index = Index()
    try:
        found = leases(plan, index, items)
    finally:
        index.close()
    assert len(found) == len(items)
    first_good = {i: f"text {n}" for n, (i, is_good) in reversed(list(enumerate(drawn))) if is_good}
    run = {what(lease) for lease in found.values() if not isinstance(lease.dialogue, BadInput)}
    assert run == set(first_good.values())
    faults = [what(lease) for lease in found.values() if isinstance(lease.dialogue, BadInput)]
    own = sorted(f"fault {n}" for n, (_, is_good) in enumerate(drawn) if not is_good)
    assert sorted(f for f in faults if f.startswith("fault")) == own
