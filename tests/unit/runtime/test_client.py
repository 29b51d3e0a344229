"""The way of a call: log, twin calls, replicas, retries, draining."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dialoom import registry
from dialoom.engine import Address, Engine, Message, Request, Response, Sampling
from dialoom.errors import (
    EngineBusy,
    EngineDown,
    EngineError,
    EngineRefused,
    Interrupted,
    PromptTooLong,
    RequestRefused,
)
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import LONGEST_WAIT_S, Answer, EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.gate import Gate
from dialoom.runtime.replicas import LocalReplica, Replica
from dialoom.usage import Usage
from support import clock
from support.told import Told


def request(text: str = "hi", dialogue: str = "d", call: int = 0, trial: int = 0) -> Request:
    return Request((Message("user", text),), Sampling(), Address(dialogue, 0, call, trial=trial))


Make = Callable[..., EngineClient]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A client over engines, one replica each, all of one pool ``e``."""

    def client(*engines: Engine, attempts: int = 4, backoff_s: float = 0.0, room: int = 64, segment: str = "s") -> Any:
        folder = RunFolder(tmp_path)
        folder.make()
        replicas: list[Replica] = [LocalReplica(f"e/{i}", e, Gate(room)) for i, e in enumerate(engines)]
        log = CallLog(folder, segment, [folder])
        pools = {"e": Pool(engines[0].identity, replicas)}
        return EngineClient(pools, log, max_attempts=attempts, backoff_s=backoff_s, seed=0)

    return client


async def ask(client: EngineClient, asked: Request) -> Answer:
    return await client.call("e", asked, [client.digests.message(m) for m in asked.messages])


def test_a_call_is_counted_and_says_how_it_came(make: Make) -> None:
    client = make(Told("fine"))
    answer = asyncio.run(ask(client, request()))
    assert answer.response == Response("fine", Usage(10, 4, 3), attempts=1, replica="e/0")
    assert not answer.replayed
    assert len(answer.digest) == 32
    counts = client.counts
    assert (counts.calls, counts.replayed, counts.retries) == (1, 0, 0)
    assert (counts.prompt_tokens, counts.cached_tokens, counts.output_tokens) == (10, 4, 3)


def test_the_scripted_engine_answers_through_it(make: Make) -> None:
    plugin = registry.find("engines", "scripted")
    engine = plugin.create(plugin.config(rule="support.rules:nasty"), replica=0)

    async def run() -> tuple[Answer, Answer]:
        await engine.start()
        client = make(engine)
        return await ask(client, request()), await ask(client, request())

    first, second = asyncio.run(run())
    assert first.response.text == "\0 😀 \\ud800 \x1b[2J hi"
    assert second.response.text == first.response.text
    assert (first.replayed, second.replayed) == (False, True)


def test_a_place_left_is_taken_before_the_answer_is_worked_on(make: Make) -> None:
    """Four units, two places, answers that come together: what waits is sent before any answer is worked on."""
    engine = _Together(2)
    client = make(engine, room=2)
    events = engine.events

    async def unit(number: int) -> None:
        await ask(client, request(f"u{number}"))
        events.append("worked")

    async def run() -> None:
        await asyncio.gather(*(unit(i) for i in range(4)))

    asyncio.run(run())
    assert events[:4] == ["sent", "sent", "sent", "sent"]
    assert events[4:] == ["worked"] * 4


class _Together(Told):
    """Answers as soon as so many calls are there, all at once; notes when each was sent."""

    def __init__(self, size: int) -> None:
        super().__init__("ok")
        self.events: list[str] = []
        self._size = size
        self._waiting: list[asyncio.Future[None]] = []

    async def generate(self, request: Request) -> Response:
        self.events.append("sent")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) == self._size:
            loop.call_soon(self._answer)
        await future
        return await super().generate(request)

    def _answer(self) -> None:
        for one in self._waiting:
            one.set_result(None)
        self._waiting.clear()


def test_retriable_failures_are_tried_again_and_counted(make: Make) -> None:
    engine = Told(EngineDown("reset"), EngineBusy("429"), "ok")
    client = make(engine)
    answer = asyncio.run(ask(client, request()))
    assert (answer.response.text, answer.response.attempts) == ("ok", 3)
    assert (client.counts.calls, client.counts.retries, len(engine.calls)) == (1, 2, 3)


def test_the_last_try_raises_what_it_met(make: Make) -> None:
    engine = Told(EngineDown("reset"), EngineBusy("busy"))
    client = make(engine, attempts=3)
    with pytest.raises(EngineBusy, match="busy") as caught:
        asyncio.run(ask(client, request()))
    assert caught.value.__dict__["attempts"] == 3
    assert (len(engine.calls), client.counts.calls, client.counts.retries) == (3, 0, 2)


@pytest.mark.parametrize(
    "error", [EngineRefused("key"), RequestRefused("400"), PromptTooLong("long"), EngineError("x")]
)
def test_what_repeating_does_not_change_passes_at_once(make: Make, error: EngineError) -> None:
    engine = Told(error)
    with pytest.raises(type(error)):
        asyncio.run(ask(make(engine), request()))
    assert len(engine.calls) == 1


def test_an_engines_own_exceptions_are_engine_errors(make: Make) -> None:
    with pytest.raises(EngineError, match=r"e/0: ZeroDivisionError: by zero\. The engine itself failed\."):
        asyncio.run(ask(make(Told(ZeroDivisionError("by zero"))), request()))


def test_a_failed_call_is_not_logged(make: Make) -> None:
    client = make(Told(RequestRefused("no"), "yes"))
    with pytest.raises(RequestRefused):
        asyncio.run(ask(client, request()))
    assert asyncio.run(ask(client, request())).response.text == "yes"


def test_backoff_doubles_with_jitter_up_to_its_limit(make: Make) -> None:
    client = make(Told(*[EngineDown("down")] * 11, "ok"), attempts=20, backoff_s=1.0)
    _, waited_s = clock.run(ask(client, request()))
    least, most = (sum(min(jitter * 2.0**i, LONGEST_WAIT_S) for i in range(11)) for jitter in (0.5, 1.5))
    assert least < waited_s < most
    assert client.counts.waiting_s == pytest.approx(waited_s)


def test_no_backoff_means_no_waiting(make: Make) -> None:
    _, waited_s = clock.run(ask(make(Told(*[EngineDown("down")] * 19, "ok"), attempts=20), request()))
    assert waited_s == 0


def test_very_many_attempts_are_no_trouble(make: Make) -> None:
    client = make(Told(*[EngineDown("down")] * 1500, "ok"), attempts=2000, backoff_s=0.5)
    answer, waited_s = clock.run(ask(client, request()))
    assert answer.response.attempts == 1501
    assert waited_s <= 1500 * LONGEST_WAIT_S


@pytest.mark.parametrize(("asked_s", "waited_s"), [(7.0, 7.0), (0.0, 0.0), (3600.0, LONGEST_WAIT_S), (-1.0, 0.0)])
def test_retry_after_is_honoured_up_to_the_longest_wait(make: Make, asked_s: float, waited_s: float) -> None:
    client = make(Told(EngineBusy("429", retry_after_s=asked_s), "ok"), backoff_s=100.0)
    answer, measured_s = clock.run(ask(client, request()))
    assert measured_s == pytest.approx(waited_s)
    assert answer.response.text == "ok"


def test_equal_calls_at_once_are_sent_once(make: Make) -> None:
    engine = Told()
    client = make(engine)

    async def run() -> list[Answer]:
        engine.hold = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, engine.hold.set)
        return await asyncio.gather(*(ask(client, request(dialogue=f"d{i}")) for i in range(10)))

    answers = asyncio.run(run())
    assert len(engine.calls) == 1
    assert {a.response.text for a in answers} == {"ok"}
    assert sorted(a.replayed for a in answers) == [False] + [True] * 9
    assert (client.counts.calls, client.counts.replayed) == (1, 9)


def test_trials_are_calls_of_their_own(make: Make) -> None:
    engine = Told()
    client = make(engine)

    async def run() -> None:
        await asyncio.gather(*(ask(client, request(trial=i)) for i in range(3)))

    asyncio.run(run())
    assert len(engine.calls) == 3


def test_twins_share_a_failure(make: Make) -> None:
    engine = Told(PromptTooLong("long"))
    client = make(engine)

    async def run() -> list[Any]:
        engine.hold = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, engine.hold.set)
        return await asyncio.gather(*(ask(client, request()) for _ in range(3)), return_exceptions=True)

    assert [type(e) for e in asyncio.run(run())] == [PromptTooLong] * 3
    assert len(engine.calls) == 1


def test_a_call_that_its_sender_gave_up_is_sent_by_the_next(make: Make) -> None:
    engine = Told()
    client = make(engine)

    async def run() -> list[Any]:
        engine.hold = asyncio.Event()
        tasks = [asyncio.create_task(ask(client, request())) for _ in range(4)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        await asyncio.sleep(0.01)
        engine.hold.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert [a.response.text for a in others] == ["ok"] * 3
    assert len(engine.calls) == 2
    assert client.counts.calls == 1


def test_a_waiting_twin_that_gives_up_does_not_stop_the_call(make: Make) -> None:
    engine = Told()
    client = make(engine)

    async def run() -> Answer:
        engine.hold = asyncio.Event()
        sender, waiter = (asyncio.create_task(ask(client, request())) for _ in range(2))
        await asyncio.sleep(0.01)
        waiter.cancel()
        await asyncio.sleep(0)
        engine.hold.set()
        return await sender

    assert asyncio.run(run()).response.text == "ok"


def test_the_log_answers_in_a_later_run_at_no_cost(make: Make) -> None:
    first = make(Told("recorded"))

    async def run() -> Answer:
        answer = await ask(first, request())
        await first.close()
        return answer

    live = asyncio.run(run())
    engine = Told("another")
    later = make(engine, segment="later")
    answer = asyncio.run(ask(later, request()))
    assert answer.replayed
    assert answer.digest == live.digest
    assert answer.response == Response("recorded", Usage(10, 4, 3), replica="log")
    assert answer.latency_s == 0
    assert engine.calls == []
    assert (later.counts.calls, later.counts.replayed, later.counts.prompt_tokens) == (0, 1, 0)


def drained(client: EngineClient, work: Callable[[], Awaitable[Any]]) -> type:
    """What a call ends with when draining begins a moment after it."""

    async def run() -> type:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.01)
        client.draining.set()
        results = await asyncio.gather(task, return_exceptions=True)
        return type(results[0])

    return asyncio.run(run())


def test_no_new_call_is_sent_while_draining(make: Make) -> None:
    engine = Told()
    client = make(engine)
    client.draining.set()
    with pytest.raises(Interrupted):
        asyncio.run(ask(client, request()))
    assert engine.calls == []


def test_recorded_answers_are_given_while_draining(make: Make) -> None:
    client = make(Told())
    asyncio.run(ask(client, request()))
    client.draining.set()
    assert asyncio.run(ask(client, request())).replayed


def test_a_wait_before_a_retry_ends_with_draining(make: Make) -> None:
    client = make(Told(EngineBusy("429", retry_after_s=50.0)))
    assert drained(client, lambda: ask(client, request())) is Interrupted


def test_a_call_under_way_is_awaited_while_draining(make: Make) -> None:
    engine = Told()
    client = make(engine)

    async def work() -> Answer:
        engine.hold = asyncio.Event()
        asyncio.get_running_loop().call_later(0.03, engine.hold.set)
        return await ask(client, request())

    assert drained(client, work) is Answer


def test_a_failure_while_draining_is_no_failure_of_the_engine(make: Make) -> None:
    engine = Told(EngineDown("reset"))
    client = make(engine)

    async def work() -> Any:
        engine.hold = asyncio.Event()
        asyncio.get_running_loop().call_later(0.03, engine.hold.set)
        return await asyncio.gather(*(ask(client, request()) for _ in range(2)))

    assert drained(client, work) is Interrupted


def test_vectors_are_tried_again_too(make: Make) -> None:
    client = make(Told(EngineDown("reset"), "ok"))
    assert asyncio.run(vectors(client, "a", "bc")).response.vectors == ((1.0,), (2.0,))
    assert (client.counts.calls, client.counts.retries) == (1, 1)
    with pytest.raises(EngineRefused):
        asyncio.run(vectors(make(Told(EngineRefused("no vectors"))), "a"))


async def vectors(client: EngineClient, *texts: str, trial: int = 0) -> Answer:
    messages = tuple(Message("text", t) for t in texts)
    asked = Request(messages, Sampling(), Address("d", 0, 0, trial=trial), vectors=True)
    return await client.call("e", asked, [client.digests.message(m) for m in messages])


def test_vectors_are_logged_and_paid_once(make: Make) -> None:
    engine = Told("ok", EngineRefused("paid again"))
    client = make(engine)

    async def run(client: EngineClient) -> list[Answer]:
        twins = await asyncio.gather(vectors(client, "a", "bc"), vectors(client, "a", "bc", trial=1))
        return [*twins, await vectors(client, "a", "bc")]

    first, *others = asyncio.run(run(client))
    assert [a.replayed for a in (first, *others)] == [False, True, True]
    assert (client.counts.calls, client.counts.replayed, client.counts.prompt_tokens) == (1, 2, 3)
    asyncio.run(client.close())
    later = asyncio.run(run(make(engine, segment="later")))
    assert {a.response.vectors for a in (first, *others, *later)} == {((1.0,), (2.0,))}
    assert {a.digest for a in later} == {first.digest}
    for other in (("bc", "a"), ("a",), ("abc",)):
        with pytest.raises(EngineRefused, match="paid again"):
            asyncio.run(vectors(client, *other))


def test_a_prompt_of_the_same_text_is_another_call(make: Make) -> None:
    client = make(Told("ok"))

    async def run() -> tuple[Answer, Answer]:
        return await vectors(client, "a"), await client.call("e", request("a"), [client.digests.message(TEXT)])

    one, other = asyncio.run(run())
    assert (one.response.text, other.response.text) == ("", "ok")
    assert not other.replayed


TEXT = Message("text", "a")


def test_calls_beyond_the_gate_wait_and_say_so(make: Make) -> None:
    plugin = registry.find("engines", "scripted")
    engine = plugin.create(plugin.config(rule="support.rules:echo", latency_s=0.02), replica=0)

    async def run() -> list[Answer]:
        await engine.start()
        client = make(engine, room=1)
        return await asyncio.gather(*(ask(client, request(f"text {i}")) for i in range(3)))

    waits = [a.response.usage.queue_s for a in asyncio.run(run())]
    assert waits[0] < 0.02
    assert waits[1] >= 0.02
    assert waits[2] >= 0.04
