"""Every failure of an endpoint, played by a real HTTP server, through whole runs."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import EngineRefused
from dialoom.run import RunResult, run
from dialoom.runtime.cluster import cluster
from dialoom.runtime.ending import Ending
from support.http_server import Answer, Endpoint, Reply, Seen, completion, failure
from support.jobs import TINY, chat, small_plan
from support.results import rows

pytestmark = pytest.mark.timeout(300)  # Ray's processes are slow to start on a busy machine

DIALOGUES = [chat(f"d{i}", "hello", "bye") for i in range(12)]
N_CALLS = 4 * len(DIALOGUES)
KEY = "sk-a-very-secret-key"


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all runs of this file; they join it. Its processes have this environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_KEY", KEY)
        with cluster():
            yield


def text_of(seen: Seen) -> str:
    return str(seen.body["messages"][-1]["content"])


def answered(seen: Seen) -> Reply:
    """An answer that depends on the prompt, so that mixed-up answers would show."""
    return completion(f"to {text_of(seen)}")


def first_tries(fault: Callable[[], Reply], share: int = 2, tries: int = 1) -> Answer:
    """``fault`` for the first ``tries`` tries of every ``share``-th call, and an answer for all else."""
    numbers: dict[str, int] = {}
    tried: Counter[str] = Counter()

    def answer(seen: Seen) -> Reply:
        text = text_of(seen)
        number = numbers.setdefault(text, len(numbers))
        tried[text] += 1
        return fault() if number % share == 0 and tried[text] <= tries else answered(seen)

    return answer


def openai(*endpoints: Endpoint, **more: Any) -> dict[str, Any]:
    urls = [e.url for e in endpoints]
    return {"use": "openai", "model": "m", "base_url": urls, "api_key_env": "", "timeout_s": 10.0, **more}


def run_job(folder: Path, engine: dict[str, Any], **fields: Any) -> RunResult:
    fields.setdefault("run", {"backoff_s": 0.02})
    return run(small_plan(folder, DIALOGUES, engines={"main": engine}, **fields))


def assert_whole(result: RunResult) -> None:
    """Every unit is accepted, and every call has the answer to its own prompt."""
    assert result.status == 0, result.error
    assert {r["outcome"] for r in rows(result)} == {"accepted"}
    assert len(rows(result)) == len(DIALOGUES)
    messages = {m["message_id"]: m["content"] for m in rows(result, "messages")}
    calls = rows(result, "calls")
    assert len(calls) == N_CALLS
    assert all(c["text"] == f"to {messages[c['message_ids'][-1]]}" for c in calls)


FAULTS: dict[str, Callable[[], Reply]] = {
    "429 without a time": lambda: failure(429, "slow down"),
    "429 with Retry-After": lambda: failure(429, "slow down", headers={"Retry-After": "0.2"}),
    "500": lambda: failure(500, "oops"),
    "502 with HTML": lambda: Reply(b"<html>bad gateway</html>", status=502),
    "503": lambda: failure(503, "loading"),
    "503 with Retry-After": lambda: failure(503, "loading", headers={"Retry-After": "0.1"}),
    "reset": lambda: Reply(fault="reset"),
    "closed": lambda: Reply(fault="close"),
    "half a body": lambda: completion("half of it", fault="half"),
    "no JSON": lambda: Reply(b"{never ends"),
    "an error inside a 200": lambda: Reply({"error": {"message": "upstream", "code": 502}}),
    "no choices": lambda: Reply({"choices": []}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_passing_failure_costs_a_retry_and_no_result(tmp_path: Path, name: str) -> None:
    with Endpoint(first_tries(FAULTS[name])) as endpoint:
        result = run_job(tmp_path, openai(endpoint))
        assert_whole(result)
        assert len(endpoint.calls()) == N_CALLS + N_CALLS // 2, "each call is sent until it is answered, and no more"
    assert result.progress.counts["retries"] == N_CALLS // 2
    assert Counter(c["attempts"] for c in rows(result, "calls")) == {1: N_CALLS // 2, 2: N_CALLS // 2}


def test_silence_is_bounded(tmp_path: Path) -> None:
    with Endpoint(first_tries(lambda: Reply(fault="hang"), share=6)) as endpoint:
        began = time.monotonic()
        result = run_job(tmp_path, openai(endpoint, timeout_s=0.5))
        assert_whole(result)
        assert time.monotonic() - began < 60


def test_retry_after_holds_back_the_whole_replica(tmp_path: Path) -> None:
    refused: list[float] = []
    times: list[float] = []

    def answer(seen: Seen) -> Reply:
        times.append(time.monotonic())
        if len(times) == 20:
            refused.append(times[-1])
            return failure(429, "slow down", headers={"Retry-After": "1.5"})
        return answered(seen)

    with Endpoint(answer) as endpoint:
        assert_whole(run_job(tmp_path, openai(endpoint, concurrency=2)))
    early = [t - refused[0] for t in times if 0.2 < t - refused[0] < 1.4]
    assert not early, "a call was sent within the time that the endpoint asked for"


def test_an_endpoint_with_a_limit_is_used_near_it(tmp_path: Path) -> None:
    """The endpoint takes four calls at once, for 50 ms each; the ceiling is far above. Few are refused."""
    under_way: deque[float] = deque()
    most = refusals = 0

    def answer(seen: Seen) -> Reply:
        nonlocal most, refusals
        now = time.monotonic()
        while under_way and under_way[0] < now - 0.05:
            under_way.popleft()
        if len(under_way) >= 4:
            refusals += 1
            return failure(429, "slow down")
        under_way.append(now)
        most = max(most, len(under_way))
        return completion("yes", delay_s=0.05)

    dialogues = [chat(f"d{i}", "hello", "bye") for i in range(60)]
    with Endpoint(answer) as endpoint:
        engine = openai(endpoint, concurrency=64)
        result = run(small_plan(tmp_path, dialogues, engines={"main": engine}, run={"backoff_s": 0.05}))
    assert result.status == 0
    assert most == 4
    assert refusals < 4 * len(dialogues), "more calls were refused than answered"


@pytest.mark.parametrize(("status", "says"), [(401, "is not accepted"), (403, "no right"), (402, "no credit")])
def test_a_wrong_key_ends_the_run_and_is_never_shown(tmp_path: Path, status: int, says: str) -> None:
    words = {401: f"bad key {KEY}", 403: "no right", 402: "no credit"}
    with Endpoint(failure(status, words[status])) as endpoint:
        first = run_job(tmp_path, openai(endpoint, api_key_env="SOME_API_KEY"))
        assert (first.ending, first.status) == (Ending.ENGINE, 4)
        assert isinstance(first.error, EngineRefused)
        assert says in str(first.error)
        if status != 402:
            assert "SOME_API_KEY" in str(first.error)
        assert len(rows(first)) == len(DIALOGUES)
        assert {r["outcome"] for r in rows(first)} <= {"infrastructure", "interrupted"}
        endpoint.answer = answered
        assert_whole(run_job(tmp_path, openai(endpoint, api_key_env="SOME_API_KEY")))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), f"the key is in {path}"


def test_a_key_that_is_refused_at_the_start(tmp_path: Path) -> None:
    with Endpoint(answered, models=failure(401, "bad key")) as endpoint:
        result = run_job(tmp_path, openai(endpoint, api_key_env="SOME_API_KEY"))
    assert (result.ending, result.status) == (Ending.ENGINE, 4)
    assert "the key in SOME_API_KEY is not accepted" in str(result.error)
    assert KEY not in str(result.error)
    assert not endpoint.calls()


def test_an_endpoint_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    away_until = [float("inf")]
    times: list[float] = []

    def answer(seen: Seen) -> Reply:
        times.append(time.monotonic())
        if len(times) == 10:
            away_until[0] = times[-1] + 2.0
        return Reply(fault="reset") if len(times) >= 10 and times[-1] < away_until[0] else answered(seen)

    with Endpoint(answer) as endpoint:
        result = run_job(tmp_path, openai(endpoint, concurrency=4), run={"backoff_s": 0.1, "max_attempts": 12})
        assert_whole(result)
    retries = result.progress.counts["retries"]
    assert 4 <= retries < 100, "backoff keeps the retries few"


def test_an_endpoint_that_stays_away_ends_the_run_and_says_why(tmp_path: Path) -> None:
    dialogues = [chat(f"d{i}", "hello", "bye") for i in range(60)]
    seen: list[Seen] = []

    def answer(asked: Seen) -> Reply:
        seen.append(asked)
        return answered(asked) if len(seen) < 20 else Reply(fault="reset")

    with Endpoint(answer) as endpoint:
        fields: dict[str, Any] = {"engines": {"main": openai(endpoint, concurrency=8)}}
        first = run(small_plan(tmp_path, dialogues, **fields, run={"backoff_s": 0.01, "max_attempts": 3}))
        assert (first.ending, first.status) == (Ending.LIMIT, 4)
        assert "limits.error_share" in str(first.error)
        assert "the connection failed" in str(first.error)
        assert len(rows(first)) == 60
        assert {r["outcome"] for r in rows(first)} <= {"accepted", "infrastructure", "job_limit"}
        endpoint.answer = answered
        again = run(small_plan(tmp_path, dialogues, **fields))
        assert again.status == 0
    assert again.progress.counts["calls"] + first.progress.counts["calls"] == 4 * 60


def test_one_of_two_endpoints_goes_away(tmp_path: Path) -> None:
    """Its dialogues go on at the other one; nothing fails, and the dead one is not asked over and over."""
    with Endpoint(answered) as good, Endpoint() as bad:
        calls: list[Seen] = []

        def answer(seen: Seen) -> Reply:
            calls.append(seen)
            return answered(seen) if len(calls) <= 8 else Reply(fault="reset")

        bad.answer = answer
        result = run_job(tmp_path, openai(good, bad, concurrency=4), run={"backoff_s": 0.01, "max_attempts": 3})
        assert_whole(result)
        assert 8 < len(bad.calls()) < 8 + N_CALLS // 2
    assert {c["replica"] for c in rows(result, "calls")} == {"main/0", "main/1"}


MODERATED = {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["x"], "flagged_input": "he"}}}


@pytest.mark.parametrize(
    "refusal",
    [
        failure(422, "I do not like it"),
        Reply(MODERATED, status=403),
        failure(403, "not for this model", delay_s=0.5),  # the others are answered by then
        failure(404, "no provider takes it", delay_s=0.5),
    ],
)
def test_a_request_that_is_refused_costs_its_turn_only(tmp_path: Path, refusal: Reply) -> None:
    def answer(seen: Seen) -> Reply:
        return refusal if text_of(seen).startswith("d3 ") else answered(seen)

    with Endpoint(answer) as endpoint:
        result = run_job(tmp_path, openai(endpoint))
    found = {r["dialogue_id"]: r["outcome"] for r in rows(result)}
    assert found.pop("d3") == "infrastructure"
    assert set(found.values()) == {"accepted"}
    assert result.status == 3
    (call,) = [c for c in rows(result, "calls") if c["error"]]
    assert (call["attempts"], call["error"][:15]) == (1, "request_refused")


def test_an_endpoint_that_refuses_every_request_ends_the_run_and_says_why(tmp_path: Path) -> None:
    """The method goes on after a refusal: without an end, all of it would be scored. Mended, all of it is owed."""
    dialogues = [chat(f"d{i}", "hello", "bye") for i in range(60)]
    words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."

    def answer(seen: Seen) -> Reply:
        return failure(400, words) if "max_tokens" in seen.body else answered(seen)

    with Endpoint(answer) as endpoint:
        fields: dict[str, Any] = {"methods": [TINY | {"falls_back": True}], "run": {"backoff_s": 0.0}}
        wrong = openai(endpoint, concurrency=2)
        first = run(small_plan(tmp_path, dialogues, engines={"main": wrong}, **fields))
        assert (first.ending, first.status) == (Ending.ENGINE, 4)
        assert words in str(first.error)
        assert "'omit'" in str(first.error)
        assert {r["outcome"] for r in rows(first)} <= {"infrastructure", "interrupted"}
        mended = wrong | {"max_tokens_field": "max_completion_tokens"}
        again = run(small_plan(tmp_path, dialogues, engines={"main": mended}, **fields))
    assert again.status == 0, again.error
    assert Counter(r["outcome"] for r in rows(again)) == {"accepted": 60}


def test_one_of_two_endpoints_is_down_when_the_run_starts(tmp_path: Path) -> None:
    with Endpoint(answered) as good, Endpoint(answered, models=failure(502, "bad gateway")) as bad:
        assert_whole(run_job(tmp_path, openai(bad, good)))
        assert not bad.calls()


def test_a_run_without_any_endpoint_ends_and_says_why(tmp_path: Path) -> None:
    with Endpoint(models=failure(502, "bad gateway")) as one, Endpoint(models=Reply(fault="reset")) as two:
        result = run_job(tmp_path, openai(one, two), run={"backoff_s": 0.01, "max_attempts": 3})
    assert (result.ending, result.status) == (Ending.ENGINE, 4)
    assert "bad gateway" in str(result.error)
    assert len(one.seen) == len(two.seen)
