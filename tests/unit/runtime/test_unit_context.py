"""What a method gets, and the rows that come of a unit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.engine import Message
from dialoom.errors import DialoomError, EngineRefused, LimitReached, NotRecorded, PromptTooLong
from dialoom.job import MOST
from dialoom.method import Fired, Support, TurnTrace
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.gate import Gate
from dialoom.runtime.replicas import LocalReplica
from dialoom.runtime.unit_context import UnitContext, sampling_seed
from dialoom.state import BeliefState, SlotRef
from dialoom.unit import UnitKey
from support.jobs import TINY, small_plan
from support.told import Told

REF = SlotRef("s", "t0")
TURNS = (
    Turn(Speaker.SYSTEM, "welcome"),
    Turn(Speaker.USER, "one", (Frame("s", {"t0": ("a", "b")}, "find", ()),)),
    Turn(Speaker.SYSTEM, "go"),
    Turn(Speaker.SYSTEM, "on"),
    Turn(Speaker.USER, "two"),
    Turn(Speaker.USER, "three"),
)
DIALOGUE = Dialogue("d", TURNS, services=("s",), language="en", extra={"x": 1}, source="file:1")
Make = Callable[..., UnitContext]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A context over an engine that answers what it is told."""

    def context(
        *words: Any, dialogue: Dialogue = DIALOGUE, trial: int = 0, sources: bool = False, **fields: Any
    ) -> UnitContext:
        plan = small_plan(tmp_path, **fields)
        folder = RunFolder(tmp_path / "run")
        folder.make()
        engine = Told(*words)
        pools = {"main": Pool(engine.identity, [LocalReplica("main/0", engine, Gate(9))], replays=sources)}
        log = CallLog(folder, "again", [folder]) if sources else CallLog(folder, "s")
        client = EngineClient(pools, log, max_attempts=2, backoff_s=0.0, seed=0)
        unit = UnitKey(dialogue.dialogue_id, "tiny", "", trial)
        made = UnitContext(plan, plan.variants[0], unit, dialogue, plan.schema, client)
        made.engine = engine  # type: ignore[attr-defined]
        return made

    return context


async def ask(context: UnitContext, text: str = "hi", turn: int = 1, **more: Any) -> Any:
    return await context.generate("main", [Message("system", "head"), Message("user", text)], turn=turn, **more)


def run(work: Awaitable[Any]) -> Any:
    async def inner() -> Any:
        return await work

    return asyncio.run(inner())


def rows(context: UnitContext, outcome: Outcome | None = None, error: DialoomError | None = None) -> Any:
    """The rows, which must fit the tables."""
    made = context.rows(outcome, error, {"in_flight": 1})
    parts.encode(parts.batches(made))
    return made


def test_a_request_says_who_asks_and_how(make: Make) -> None:
    context = make("ok", trial=3, seed=40, methods=[TINY | {"temperature": 0.5, "max_tokens": 9}])

    async def work() -> None:
        await ask(context, turn=1)
        await ask(context, turn=1, max_tokens=4, stop=["x"])
        await ask(context, "another text", turn=4)

    run(work())
    first, second, third = context.engine.calls  # type: ignore[attr-defined]
    assert [tuple(r.address) for r in (first, second, third)] == [
        ("d", 1, 0, "tiny", "", 3),
        ("d", 1, 1, "tiny", "", 3),
        ("d", 4, 0, "tiny", "", 3),
    ]
    assert (first.sampling.temperature, first.sampling.max_tokens, first.sampling.seed) == (
        0.5,
        9,
        sampling_seed(40, 3),
    )
    assert (second.sampling.max_tokens, second.sampling.stop) == (4, ("x",))


def test_no_two_trials_of_a_sweep_over_seeds_share_a_sampling_seed() -> None:
    assert [sampling_seed(seed, 0) for seed in (0, 1, 2, 2**30 - 1)] == [0, 1, 2, 2**30 - 1]
    pairs = [(seed, trial) for seed in (*range(200), 1234, 99_999) for trial in (*range(50), 9_999)]
    assert len({sampling_seed(*pair) for pair in pairs}) == len(pairs)


@given(st.integers(0, MOST), st.integers(0, 9_999))
def test_a_sampling_seed_fits_every_engine(seed: int, trial: int) -> None:
    assert 0 <= sampling_seed(seed, trial) < 2**31


def test_no_seed_is_sent_where_nothing_is_drawn(make: Make) -> None:
    context = make("ok", seed=40)
    run(ask(context))
    assert context.engine.calls[0].sampling.seed is None  # type: ignore[attr-defined]


def test_rows_of_calls(make: Make) -> None:
    context = make("ok \0 \ud800")

    async def work() -> None:
        call = await ask(context, "hi", answer_schema={"type": "object"})
        call.step, call.action, call.observation = "step", {"say": "\ud800"}, "seen \ud800"
        call.rules = ("R1", "R\ud800")

    run(work())
    (row,) = rows(context)["calls"]
    assert (row["dialogue_id"], row["turn"], row["call"], row["role"], row["engine"]) == ("d", 1, 0, "main", "main")
    assert row["text"] == "ok \0 \\ud800"
    assert (row["step"], row["observation"], row["rules"]) == ("step", "seen \\ud800", ["R1", "R\\ud800"])
    assert orjson.loads(row["action"]) == {"say": "\\ud800"}
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"], row["attempts"]) == (10, 4, 3, 1)
    assert [context.messages[i] for i in row["message_ids"]] == [Message("system", "head"), Message("user", "hi")]
    assert context.messages[row["answer_schema_id"]].content == '{"type":"object"}'
    assert orjson.loads(row["sampling"])["max_tokens"] == 256


def test_a_failed_call_has_a_row_too(make: Make) -> None:
    context = make(PromptTooLong("too long"), "ok")

    async def work() -> None:
        with pytest.raises(PromptTooLong):
            await ask(context)
        await ask(context, "shorter")

    run(work())
    made = rows(context)
    first, second = made["calls"]
    assert (first["finish_reason"], first["error"], first["call"]) == ("error", "prompt_too_long: too long", 0)
    assert (second.get("error"), second["call"]) == (None, 1)
    assert made["dialogues"][0]["n_calls"] == 2
    assert made["dialogues"][0]["prompt_tokens"] == 10


def test_rows_of_turns(make: Make) -> None:
    context = make("ok")

    async def work() -> None:
        await ask(context, turn=4)
        await ask(context, "again", turn=4)

    run(work())
    context.turn(TurnTrace(1, Outcome.CORRECTED, BeliefState({REF: "a"}), {REF: "a"}))
    turns = rows(context)["turns"]
    assert [(t["turn"], t["user_turn"], t["user_text"], t["system_text"]) for t in turns] == [
        (1, 0, "one", "welcome"),
        (4, 1, "two", "go\non"),
        (5, 2, "three", ""),
    ]
    assert [t["n_calls"] for t in turns] == [0, 2, 0]
    assert [t["prompt_tokens"] for t in turns] == [0, 20, 0]
    assert turns[0]["state"] == turns[0]["delta"] == [{"service": "s", "slot": "t0", "value": "a"}]
    assert turns[0]["gold"][0]["slot_values"] == [{"slot": "t0", "values": ["a", "b"]}]
    assert turns[1]["gold"] is None
    assert turns[1].get("state") is None
    assert turns[1].get("outcome") is None


def test_the_row_of_the_dialogue(make: Make) -> None:
    context = make("ok")

    async def work() -> None:
        await ask(context)
        await ask(context)

    run(work())
    context.turn(TurnTrace(1, Outcome.CORRECTED))
    context.turn(TurnTrace(4, Outcome.FALLBACK))
    context.turn(TurnTrace(5, Outcome.ACCEPTED))
    (row,) = rows(context)["dialogues"]
    assert row["outcome"] == "fallback"
    assert (row["n_calls"], row["n_replayed"]) == (2, 1)
    assert (row["prompt_tokens"], row["paid_prompt_tokens"]) == (20, 10)
    assert (row["n_turns"], row["n_user_turns"], row["has_gold"], row["language"]) == (6, 3, True, "en")
    assert (row["source"], row["services"], row["extra"]) == ("file:1", ["s"], '{"x":1}')
    assert row["error"] is None


def test_an_error_is_in_the_row(make: Make) -> None:
    error = EngineRefused("wrong key", where="http://x", hint="Set the key.")
    (row,) = rows(make("ok"), Outcome.INFRASTRUCTURE, error)["dialogues"]
    assert (row["outcome"], row["error_kind"], row["error_where"]) == ("infrastructure", "engine_refused", "http://x")
    assert row["error"] == "http://x: wrong key. Set the key."


def test_the_limit_of_calls_counts_failed_ones_and_calls_under_way(make: Make) -> None:
    context = make(PromptTooLong("long"), "ok", limits={"unit_calls": 3})

    async def work() -> list[Any]:
        one_by_one = await asyncio.gather(ask(context), return_exceptions=True)
        at_once = await asyncio.gather(*(ask(context, f"text {i}") for i in range(4)), return_exceptions=True)
        return [type(r).__name__ for r in (*one_by_one, *at_once)]

    assert run(work()) == ["PromptTooLong", "Call", "Call", "LimitReached", "LimitReached"]
    assert len(context.engine.calls) == 3  # type: ignore[attr-defined]


def test_the_limit_of_tokens(make: Make) -> None:
    context = make("ok", limits={"unit_tokens": 20})

    async def work() -> None:
        await ask(context, "one")
        await ask(context, "two")
        with pytest.raises(LimitReached, match=r"d:tiny turn 1: the unit's 20 tokens are used up") as caught:
            await ask(context, "three")
        assert caught.value.scope == "unit"

    run(work())


def test_the_limit_of_time_ends_the_wait_for_an_answer_and_replays_end_there_too(make: Make) -> None:
    slow = make("late", limits={"unit_s": 0.01})

    async def wait() -> None:
        slow.engine.hold = asyncio.Event()  # type: ignore[attr-defined]
        for text in ("one", "two"):  # the first is sent and not waited for, the second is not sent
            with pytest.raises(LimitReached, match=r"d:tiny turn 1: the unit's 0.01 s are used up") as caught:
                await ask(slow, text)
            assert caught.value.scope == "unit"
        await slow._client.close()

    run(wait())
    assert len(slow.engine.calls) == 1  # type: ignore[attr-defined]
    assert [c["error"][:6] for c in rows(slow)["calls"]] == ["limit:", "limit:"]
    replay = make(NotRecorded("asked"), sources=True, limits={"unit_s": 60.0})
    for text in ("one", "two"):
        with pytest.raises(LimitReached, match="are used up"):
            run(ask(replay, text))
    with pytest.raises(NotRecorded):
        run(ask(replay, "three"))
    other = make(
        NotRecorded("asked"), sources=True, limits={"unit_s": 60.0}, dialogue=replace(DIALOGUE, dialogue_id="e")
    )
    with pytest.raises(NotRecorded):
        run(ask(other, "one"))


def test_vectors(make: Make) -> None:
    context = make("ok", limits={"unit_calls": 2})
    assert run(context.embed("main", ["a", "bc"], turn=1)) == [[1.0], [2.0]]
    run(ask(context))
    with pytest.raises(LimitReached):
        run(context.embed("main", ["d"], turn=1))
    vectors, answer = rows(context)["calls"]
    assert (vectors["turn"], vectors["call"], answer["call"]) == (1, 0, 1)
    assert (vectors["finish_reason"], vectors["text"], vectors["replayed"]) == ("vectors", "", False)
    assert (vectors["prompt_tokens"], vectors["output_tokens"]) == (3, 0)
    assert len(vectors["digest"]) == 32
    assert [context.messages[i] for i in vectors["message_ids"]] == [Message("text", "a"), Message("text", "bc")]


def test_vectors_that_could_not_be_had(make: Make) -> None:
    context = make(EngineRefused("no vectors"))
    with pytest.raises(EngineRefused):
        run(context.embed("main", ["a"], turn=1))
    (call,) = rows(context)["calls"]
    assert (call["finish_reason"], call["error"]) == ("error", "engine_refused: no vectors")


@pytest.mark.parametrize("turn", [0, 2, 6, -1])
def test_only_turns_of_the_user_are_reported(make: Make, turn: int) -> None:
    with pytest.raises(ValueError, match=f"turn {turn} of d:tiny is no turn of the user"):
        make("ok").turn(TurnTrace(turn))


any_text = st.text(max_size=6) | st.lists(st.sampled_from(["a", "\0", "😀", "\ud800"]), max_size=4).map("".join)
refs = st.builds(SlotRef, any_text, any_text)
deltas = st.dictionaries(refs, any_text, max_size=3)
json_trees = st.recursive(
    st.none() | st.integers() | st.floats() | any_text,
    lambda t: st.lists(t, max_size=2) | st.dictionaries(any_text, t),
    max_leaves=4,
)
traces = st.builds(
    TurnTrace,
    turn=st.integers(0, 2),
    outcome=st.sampled_from(Outcome),
    state=st.none() | deltas.map(BeliefState),
    delta=deltas,
    intents=st.lists(st.tuples(any_text, any_text), max_size=2),
    active_intents=st.dictionaries(any_text, any_text, max_size=2),
    requested=st.none() | st.lists(refs, max_size=2),
    first_proposal=deltas,
    fired=st.lists(st.builds(Fired, any_text, st.integers(0, 9), any_text, any_text, any_text, any_text), max_size=2),
    support=st.lists(st.builds(Support, refs, st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)), max_size=2),
    output=st.none() | st.dictionaries(any_text, json_trees, max_size=2),
    error=any_text,
)


@given(st.lists(traces, max_size=4), any_text, any_text)
def test_whatever_a_model_makes_a_method_report_fits_the_tables(
    tmp_path_factory: pytest.TempPathFactory, reported: list[TurnTrace], dialogue_id: str, text: str
) -> None:
    plan = small_plan(tmp_path_factory.getbasetemp() / "context")
    dialogue = Dialogue(dialogue_id, (Turn(Speaker.USER, text),) * 3, services=(text,), extra={text: text}, source=text)
    client = EngineClient({}, None, max_attempts=1, backoff_s=0.0, seed=0)  # type: ignore[arg-type]
    context = UnitContext(plan, plan.variants[0], UnitKey(dialogue_id, "tiny"), dialogue, plan.schema, client)
    for trace in reported:
        context.turn(trace)
    made = rows(context)
    assert len(made["turns"]) == 3
    decoded = parts.decode(parts.encode(parts.batches(made)))
    last = {t.turn: t for t in reported}
    for row in decoded["turns"].to_pylist():
        assert row["outcome"] == (last[row["turn"]].outcome.value if row["turn"] in last else None)
