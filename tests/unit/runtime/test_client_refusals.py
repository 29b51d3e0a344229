"""What a refusal means: this one call, or the engine as a whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dialoom.engine import Address, Message, Request, Sampling
from dialoom.errors import EngineError, EngineRefused, PromptTooLong, RequestRefused
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import REFUSED_IN_A_ROW, Answer, EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.gate import Gate
from dialoom.runtime.replicas import LocalReplica, Replica
from support.told import Told

HINT = "Leave it out."


def client(folder: Path, *engines: Told, segment: str = "s") -> EngineClient:
    made = RunFolder(folder)
    made.make()
    replicas: list[Replica] = [LocalReplica(f"e/{i}", e, Gate(8)) for i, e in enumerate(engines)]
    pools = {"e": Pool(engines[0].identity, replicas)}
    return EngineClient(pools, CallLog(made, segment, [made]), max_attempts=1, backoff_s=0.0, seed=0)


async def ask(by: EngineClient, text: str, dialogue: str = "d") -> Answer:
    request = Request((Message("user", text),), Sampling(), Address(dialogue, 0, 0))
    return await by.call("e", request, [by.digests.message(m) for m in request.messages])


def ends(by: EngineClient, texts: Sequence[str]) -> list[type]:
    """What each call ends with, one after the other."""

    async def run() -> list[type]:
        found: list[type] = []
        for text in texts:
            try:
                found.append(type(await ask(by, text)))
            except EngineError as error:
                found.append(type(error))
        return found

    return asyncio.run(run())


def texts(n: int) -> list[str]:
    return [f"text {i}" for i in range(n)]


def forbidden() -> EngineRefused:
    return EngineRefused("HTTP 403: no", hint="Check the rights.", certain=False)


def unknown_field() -> RequestRefused:
    return RequestRefused("HTTP 400: no 'max_tokens'", where="http://x", hint=HINT)


def test_forbidden_calls_of_an_engine_that_never_answered_are_the_engines(tmp_path: Path) -> None:
    made = client(tmp_path, Told(forbidden()))
    assert ends(made, texts(REFUSED_IN_A_ROW)) == [*[RequestRefused] * (REFUSED_IN_A_ROW - 1), EngineRefused]
    assert "403" in str(made.unsure())


def test_a_forbidden_call_before_the_first_answer_may_be_its_own(tmp_path: Path) -> None:
    made = client(tmp_path, Told(forbidden(), "ok"))
    assert ends(made, ["a"]) == [RequestRefused]
    assert made.doubtful(["e"])
    assert made.unsure()
    assert ends(made, ["b"]) == [Answer]
    assert not made.doubtful(["e"])
    assert not made.unsure()


@pytest.mark.parametrize("refusal", [forbidden, unknown_field])
def test_an_engine_whose_first_answers_are_slow_does_not_refuse_everything(
    tmp_path: Path, refusal: Callable[[], Exception]
) -> None:
    """One of two methods asks what is refused at once, while the first answer to the other is on its way."""
    engine = Told(*[refusal()] * 2 * REFUSED_IN_A_ROW, "slow")
    made = client(tmp_path, engine)

    async def run() -> list[type]:
        hold = engine.hold = asyncio.Event()
        slow = asyncio.create_task(ask(made, "slow"))
        await asyncio.sleep(0)
        engine.hold = None
        quick = [asyncio.create_task(ask(made, text)) for text in texts(2 * REFUSED_IN_A_ROW)]
        found = [type(e) for e in await asyncio.gather(*quick, return_exceptions=True)]
        hold.set()
        return [*found, type(await slow)]

    assert asyncio.run(run()) == [*[RequestRefused] * 2 * REFUSED_IN_A_ROW, Answer]


def test_a_forbidden_call_of_an_engine_that_answers_is_its_own(tmp_path: Path) -> None:
    made = client(tmp_path, Told("ok", forbidden(), "ok"))
    assert ends(made, texts(3)) == [Answer, RequestRefused, Answer]


def test_a_wrong_key_is_the_engines_at_any_time(tmp_path: Path) -> None:
    assert ends(client(tmp_path, Told("ok", EngineRefused("HTTP 401"))), texts(2)) == [Answer, EngineRefused]


def test_so_many_forbidden_calls_in_a_row_are_the_engines(tmp_path: Path) -> None:
    found = ends(client(tmp_path, Told("ok", forbidden())), texts(REFUSED_IN_A_ROW + 1))
    assert found == [Answer, *[RequestRefused] * (REFUSED_IN_A_ROW - 1), EngineRefused]


def test_one_call_that_is_asked_again_and_again_is_no_row(tmp_path: Path) -> None:
    found = ends(client(tmp_path, Told("ok", forbidden())), ["first", *["same"] * REFUSED_IN_A_ROW])
    assert found == [Answer, *[RequestRefused] * REFUSED_IN_A_ROW]


def test_an_answer_ends_the_row(tmp_path: Path) -> None:
    words: list[Exception | str] = ["ok", *[forbidden()] * (REFUSED_IN_A_ROW - 1)]
    found = ends(client(tmp_path, Told(*words, *words, "ok")), texts(2 * REFUSED_IN_A_ROW))
    assert EngineRefused not in found
    assert found.count(Answer) == 2


def test_a_replica_that_never_answered_is_wrong_beside_one_that_does(tmp_path: Path) -> None:
    """Else a share of the dialogues would be scored without an answer, and nobody would see it."""
    good = Told("ok")
    made = client(tmp_path, good, Told(forbidden()))

    async def run() -> None:
        await ask(made, "a", "a")
        good.hold = asyncio.Event()
        under_way = asyncio.create_task(ask(made, "more of a", "a"))
        await asyncio.sleep(0)
        try:
            for text in texts(REFUSED_IN_A_ROW):
                with contextlib.suppress(RequestRefused):
                    await ask(made, text, text)
        finally:
            good.hold.set()
            await under_way

    with pytest.raises(EngineRefused, match="403"):
        asyncio.run(run())


def test_a_call_that_was_refused_in_an_earlier_run_does_not_end_this_one(tmp_path: Path) -> None:
    first = client(tmp_path, Told("ok", forbidden()))
    assert ends(first, texts(2)) == [Answer, RequestRefused]
    asyncio.run(first.close())
    later = client(tmp_path, Told(forbidden(), "ok"), segment="later")
    assert ends(later, ["text 1", "text 2"]) == [RequestRefused, Answer]


def test_an_engine_that_refuses_every_request_is_refused_in_its_own_words(tmp_path: Path) -> None:
    made = client(tmp_path, Told(unknown_field()))
    assert ends(made, texts(REFUSED_IN_A_ROW - 1)) == [RequestRefused] * (REFUSED_IN_A_ROW - 1)
    with pytest.raises(EngineRefused, match="no 'max_tokens'") as caught:
        asyncio.run(ask(made, "the last"))
    assert (caught.value.where, caught.value.hint) == ("http://x", HINT)
    assert caught.value.__dict__["attempts"] == 1


def test_two_replicas_that_refuse_every_request_share_the_row(tmp_path: Path) -> None:
    engines = Told(unknown_field()), Told(unknown_field())
    made = client(tmp_path, *engines)

    async def run() -> list[BaseException | Answer]:
        hold = engines[0].hold = engines[1].hold = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, hold.set)
        calls = (ask(made, f"text {i}", f"d{i}") for i in range(REFUSED_IN_A_ROW))
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(e) for e in asyncio.run(run())].count(EngineRefused) == 1
    assert all(engine.calls for engine in engines)


def test_an_engine_that_answered_once_may_refuse_any_number_of_requests(tmp_path: Path) -> None:
    found = ends(client(tmp_path, Told("ok", unknown_field())), texts(3 * REFUSED_IN_A_ROW))
    assert found == [Answer, *[RequestRefused] * (3 * REFUSED_IN_A_ROW - 1)]


def test_prompts_that_are_too_long_tell_nothing_of_the_engine(tmp_path: Path) -> None:
    found = ends(client(tmp_path, Told(PromptTooLong("long"))), texts(2 * REFUSED_IN_A_ROW))
    assert found == [PromptTooLong] * (2 * REFUSED_IN_A_ROW)


def test_what_was_refused_is_asked_again_in_the_next_run(tmp_path: Path) -> None:
    first = client(tmp_path, Told(unknown_field()))
    assert ends(first, texts(REFUSED_IN_A_ROW))[-1] is EngineRefused
    asyncio.run(first.close())
    mended = client(tmp_path, Told("ok"), segment="mended")
    assert ends(mended, texts(REFUSED_IN_A_ROW)) == [Answer] * REFUSED_IN_A_ROW
