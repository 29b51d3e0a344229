"""The openai engine against a real HTTP server: requests, answers, and every failure."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import socket
import time
import traceback
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any, TypeVar

import pytest

from dialoom import errors
from dialoom.engine import Address, EnginePlugin, Message, Request, Response, Sampling
from dialoom.engines.openai import PLUGIN, OpenAIConfig, OpenAIEngine
from dialoom.registry import find
from support.http_server import Endpoint, Reply, completion, failure, in_turn, model_list

KEY = "sk-very-secret-0123456789"
MODERATED = {
    "error": {
        "code": 403,
        "message": "m requires moderation on Y. Your input was flagged.",
        "metadata": {"reasons": ["violence"], "flagged_input": "he hit", "provider_name": "Y", "model_slug": "m"},
    }
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


T = TypeVar("T")


def request(**fields: Any) -> Request:
    sampling = fields.pop("sampling", Sampling(max_tokens=32))
    messages = (Message("system", "be brief"), Message("user", "hi \U0001f600"))
    return Request(messages, sampling, Address("d", 0, 0), **fields)


def use(url: str, do: Callable[[OpenAIEngine], Awaitable[T]], **settings: Any) -> T:
    """What ``do`` returns for a started engine at ``url``."""

    async def run() -> T:
        engine = PLUGIN.create(OpenAIConfig.model_validate({"model": "m", "base_url": url} | settings), replica=0)
        await engine.start()
        try:
            return await do(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def generate(url: str, request_: Request | None = None, **settings: Any) -> Response:
    return use(url, lambda e: e.generate(request_ or request()), **settings)


def test_plugin_satisfies_the_protocol() -> None:
    plugin: EnginePlugin = PLUGIN
    assert find("engines", "openai") is plugin
    config = OpenAIConfig(model="m", base_url=("http://a/v1", "http://b/v1"))
    assert not plugin.hosted(config)
    assert plugin.replicas(config) == 2
    assert plugin.in_flight(config) == 64
    assert plugin.resources(config)["num_gpus"] == 0


def test_a_request_says_what_was_asked_and_no_more() -> None:
    with Endpoint() as server:
        generate(server.url)
        sent = server.calls()[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi \U0001f600"}],
        "temperature": 0.0,
        "max_tokens": 32,
    }


def test_text_that_is_no_unicode_is_sent_as_escapes() -> None:
    broken = Request((Message("user", "a\ud800\x00b"),), Sampling(), Address("d", 0, 0))
    with Endpoint() as server:
        generate(server.url, broken)
        assert server.calls()[0].body["messages"][0]["content"] == "a\\ud800\x00b"


def test_a_full_request() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    sampling = Sampling(temperature=0.7, max_tokens=5, top_p=0.9, seed=3, stop=("X",), logprobs=True)
    with Endpoint() as server:
        generate(
            server.url,
            request(sampling=sampling, tools=(tool,), answer_schema=SCHEMA),
            max_tokens_field="max_completion_tokens",
            extra_body={"reasoning_effort": "low"},
            omit=("temperature",),
        )
        body = server.calls()[0].body
    del body["messages"]
    limited = {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 80}},
        "additionalProperties": False,
        "required": ["a"],
    }
    assert body == {
        "model": "m",
        "max_completion_tokens": 5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["X"],
        "logprobs": True,
        "tools": [tool],
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": limited, "strict": False},
        },
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", set()),
        ("json_object", {"response_format"}),
        ("json_schema", {"response_format"}),
        ("vllm_guided", {"structured_outputs"}),
    ],
)
def test_ways_to_send_a_schema(kind: str, expected: set[str]) -> None:
    with Endpoint() as server:
        generate(server.url, request(answer_schema=SCHEMA), structured=kind)
        body = server.calls()[0].body
    assert set(body) - {"model", "messages", "temperature", "max_tokens"} == expected


def test_a_schema_that_cannot_be_bounded_is_a_refused_request() -> None:
    with Endpoint() as server, pytest.raises(errors.RequestRefused, match="refers to itself"):
        generate(server.url, request(answer_schema={"type": "array", "items": {"$ref": "#"}}))


def test_an_answer_with_everything() -> None:
    reply = completion(
        "yes",
        finish_reason="length",
        message={"reasoning_content": "because"},
        choice={"logprobs": {"content": [{"token": "y", "logprob": -0.25}, {"token": "es", "logprob": 0}]}},
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 15},
        },
        delay_s=0.05,
    )
    with Endpoint(reply) as server:
        got = generate(server.url)
    assert (got.text, got.reasoning, got.finish_reason) == ("yes", "because", "length")
    assert got.logprobs == (("y", -0.25), ("es", 0.0))
    usage = got.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (100, 64, 20, 15)
    assert 0.05 <= usage.run_s < 5
    assert got.replica == f"m@{server.url.split('/')[2]}"


@pytest.mark.parametrize(
    ("reply", "text", "reasoning"),
    [
        (completion("<think>why</think>yes"), "yes", "why"),
        (completion("yes", message={"reasoning": "why"}), "yes", "why"),
        (completion(None), "", ""),
        (completion("yes", usage=None), "yes", ""),
        (completion("yes", usage={"prompt_tokens": 5, "prompt_tokens_details": None}), "yes", ""),
    ],
)
def test_answers_of_other_shapes(reply: Reply, text: str, reasoning: str) -> None:
    with Endpoint(reply) as server:
        got = generate(server.url)
    assert (got.text, got.reasoning) == (text, reasoning)


def test_tool_calls_are_flat() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    with Endpoint(completion(None, finish_reason="tool_calls", message={"tool_calls": calls})) as server:
        got = generate(server.url)
    assert got.tool_calls == ({"id": "c1", "name": "f", "arguments": '{"a": 1}'},)
    assert got.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (failure(401, f"Incorrect API key provided: {KEY}"), errors.EngineRefused, "OPENAI_API_KEY"),
        (failure(403, f"{KEY} may not do this"), errors.EngineRefused, "may not do this"),
        (failure(402, "no credit left"), errors.EngineRefused, "no credit left"),
        (failure(429, "quota", code="insufficient_quota"), errors.EngineRefused, "balance"),
        (failure(429, "slow down"), errors.EngineBusy, "slow down"),
        (failure(529, "overloaded"), errors.EngineBusy, "overloaded"),
        (failure(503, "loading"), errors.EngineDown, "loading"),
        (failure(503, "wait", headers={"Retry-After": "1"}), errors.EngineBusy, "wait"),
        (failure(500, "oops"), errors.EngineDown, "oops"),
        (Reply(b"<html>Bad gateway</html>", status=502), errors.EngineDown, "Bad gateway"),
        (Reply(b"", status=504), errors.EngineDown, "504"),
        (Reply(fault="reset"), errors.EngineDown, "connection failed"),
        (Reply(fault="close"), errors.EngineDown, "connection failed"),
        (completion("x" * 5000, fault="half"), errors.EngineDown, "connection failed"),
        (Reply(b"<html>hello</html>"), errors.EngineDown, "not JSON"),
        (Reply(b'{"choices": [{"message"'), errors.EngineDown, "not JSON"),
        (Reply({"choices": []}), errors.EngineDown, "no chat completion"),
        (Reply([1]), errors.EngineDown, "no chat completion"),
        (failure(200, "no provider"), errors.EngineDown, "no provider"),
        (Reply({"error": {"message": "later", "code": 429}}), errors.EngineBusy, "later"),
        (failure(400, "'temperature' is not supported"), errors.RequestRefused, "'omit'"),
        (Reply({"detail": [{"msg": "field required"}]}, status=422), errors.RequestRefused, "field required"),
        (Reply({"object": "error", "message": "bad\x1b[2J", "code": 400}, status=400), errors.RequestRefused, "bad"),
        (failure(400, "bad", code="context_length_exceeded"), errors.PromptTooLong, "bad"),
        (
            failure(400, "This model's maximum context length is 2048 tokens. However, you requested 4000 tokens"),
            errors.PromptTooLong,
            "2048",
        ),
        (
            Reply({"error": "the request exceeds the available context size", "code": 400}, status=400),
            errors.PromptTooLong,
            "exceeds",
        ),
        (failure(422, "`inputs` tokens + `max_new_tokens` must be <= 4096"), errors.PromptTooLong, "4096"),
        (failure(400, "max_tokens=9000 cannot be greater than max_model_len=8192"), errors.PromptTooLong, "8192"),
        (failure(429, "Request too large for m on tokens per min"), errors.PromptTooLong, "too large"),
        (failure(429, "Too many tokens, please wait before trying again."), errors.EngineBusy, "Too many tokens"),
        (failure(529, "Too many tokens in flight"), errors.EngineBusy, "in flight"),
        (
            failure(503, "Too many tokens per minute, reduce the length", headers={"Retry-After": "1"}),
            errors.EngineBusy,
            "per minute",
        ),
        (failure(429, "no room", code="context_length_exceeded"), errors.PromptTooLong, "no room"),
        (failure(503, "no room", code="exceed_context_size_error"), errors.PromptTooLong, "no room"),
        (failure(400, "Too many tokens"), errors.PromptTooLong, "Too many tokens"),
        (Reply(MODERATED, status=403), errors.RequestRefused, "requires moderation"),
        (Reply(MODERATED), errors.RequestRefused, "requires moderation"),
        (Reply(MODERATED, status=404), errors.RequestRefused, "requires moderation"),
        (failure(403, "not that", code="content_filter"), errors.RequestRefused, "not that"),
        (failure(403, "not that", code="content_policy_violation"), errors.RequestRefused, "moderation"),
        (Reply(b"", status=413), errors.PromptTooLong, "413"),
        (Reply(b"moved", status=404), errors.EngineRefused, "/v1"),
    ],
)
def test_each_failure_has_its_error(reply: Reply, kind: type[errors.EngineError], said: str) -> None:
    with Endpoint(reply) as server, pytest.raises(errors.EngineError) as caught:
        generate(server.url)
    assert type(caught.value) is kind
    assert said in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert caught.value.where == server.url


def test_an_unknown_model_names_the_known_ones() -> None:
    reply = failure(404, "The model `qwen` does not exist")
    with Endpoint(reply, models=model_list("qwen3", "llama")) as server, pytest.raises(errors.EngineRefused) as caught:
        generate(server.url, model="qwen")
    assert "no model 'qwen'" in str(caught.value)
    assert "Did you mean 'qwen3'?" in caught.value.hint


IN_AN_HOUR, A_MINUTE_AGO = "in an hour", "a minute ago"
"""Dates that the test fills in: tests are collected long before they run."""


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25, 0.25),
        ({"Retry-After": IN_AN_HOUR}, 3000, 3601),
        ({"Retry-After": A_MINUTE_AGO}, 0, 0),
        ({"Retry-After": "-3"}, 0, 0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], low: float, high: float) -> None:
    dates = {
        IN_AN_HOUR: formatdate(time.time() + 3600, usegmt=True),
        A_MINUTE_AGO: formatdate(time.time() - 60, usegmt=True),
    }
    headers = {name: dates.get(value, value) for name, value in headers.items()}
    with Endpoint(failure(429, "wait", headers=headers)) as server, pytest.raises(errors.EngineBusy) as caught:
        generate(server.url)
    assert caught.value.retry_after_s is not None
    assert low <= caught.value.retry_after_s <= high


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"Retry-After": "inf"}, {"Retry-After": "nan"}])
def test_retry_after_may_be_missing_or_nonsense(headers: dict[str, str]) -> None:
    with Endpoint(failure(429, "wait", headers=headers)) as server, pytest.raises(errors.EngineBusy) as caught:
        generate(server.url)
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize("reply", [Reply(fault="hang"), completion(delay_s=30)])
def test_an_endpoint_that_does_not_answer_in_time_is_down(reply: Reply) -> None:
    began = time.monotonic()
    with Endpoint(reply) as server, pytest.raises(errors.EngineDown, match=r"0\.2 s"):
        generate(server.url, timeout_s=0.2)
    assert time.monotonic() - began < 10


def test_one_call_is_one_try() -> None:
    with Endpoint(in_turn([failure(500, "oops"), completion()])) as server:
        with pytest.raises(errors.EngineDown):
            generate(server.url)
        assert len(server.calls()) == 1
        assert generate(server.url).text == "yes"


def test_nobody_listening_is_said_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(errors.EngineDown, match="connection failed"):
            generate(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")


def test_a_wrong_key_is_said_at_the_start() -> None:
    with Endpoint(models=failure(401, "no")) as server:
        with pytest.raises(errors.EngineRefused, match="OPENAI_API_KEY is not accepted"):
            generate(server.url)
        assert server.calls() == []


@pytest.mark.parametrize("models", [failure(403, "no listing"), failure(404, "?"), failure(429, "?"), Reply(b"<html>")])
def test_an_endpoint_without_a_model_list_is_used_all_the_same(models: Reply) -> None:
    with Endpoint(models=models) as server:
        assert generate(server.url).text == "yes"


def test_a_key_that_is_asked_for_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(errors.EngineRefused, match="OPENAI_API_KEY is not set"):
        generate("https://api.openai.com/v1")
    with Endpoint() as server:
        with pytest.raises(errors.EngineRefused, match="MY_KEY is not set"):
            generate(server.url, api_key_env="MY_KEY")
        with pytest.raises(errors.EngineRefused, match="MY_KEY is not set"):
            generate(server.url, headers_env={"X-Token": "MY_KEY"})
        assert generate(server.url).text == "yes"
        assert generate(server.url, api_key_env="").text == "yes"
        assert {s.headers["authorization"] for s in server.seen} == {"Bearer none"}
    with Endpoint(failure(401, "key please")) as server, pytest.raises(errors.EngineRefused, match="is not set"):
        generate(server.url)


def test_headers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "token-value")
    with Endpoint() as server:
        generate(server.url, headers_env={"X-Token": "MY_TOKEN"})
        assert server.calls()[0].headers["x-token"] == "token-value"


def test_the_key_is_nowhere(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in errors, their chain and pickles, the identity, or log records, even where the endpoint sends it back."""
    monkeypatch.setenv("MY_TOKEN", "token-value")
    caplog.set_level(logging.DEBUG)
    replies = [
        failure(401, KEY),
        failure(403, f"{KEY} token-value"),
        failure(400, f"Bearer {KEY}"),
        failure(429, f"{KEY[:12]}*****89"),
        failure(404, KEY),
        failure(200, KEY),
        Reply(fault="reset"),
    ]

    async def run(engine: OpenAIEngine) -> list[errors.EngineError]:
        seen = []
        for _ in replies:
            try:
                await engine.generate(request())
            except errors.EngineError as error:
                seen.append(error)
        return seen

    with Endpoint(in_turn(replies)) as server:
        found = use(server.url, run, headers_env={"X-Token": "MY_TOKEN"})
        config = OpenAIConfig(model="m", base_url=server.url)
        identity = PLUGIN.create(config, replica=0).identity
    assert len(found) == len(replies)
    shown = [caplog.text, repr(identity), config.model_dump_json()]
    for error in found:
        assert error.__cause__ is None and error.__context__ is None
        shown += ["".join(traceback.format_exception(error)), repr(pickle.dumps(error)), repr(vars(error))]
    for text in shown:
        assert KEY not in text
        assert KEY[:12] not in text
        assert "token-value" not in text


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x/v1", "http://user:pw@host/v1", "http://host/v1?key=1", "http://", ()]
)
def test_urls_that_are_none_or_hold_secrets_are_refused(url: Any) -> None:
    with pytest.raises(ValueError, match="base_url"):
        OpenAIConfig(model="m", base_url=url)


def test_embeddings_keep_the_order_of_the_texts() -> None:
    rows = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0.5]}]
    with Endpoint(Reply({"data": rows, "usage": {"prompt_tokens": 5, "total_tokens": 5}})) as server:
        answer = use(server.url, lambda e: e.embed(["a", "b"]))
        assert (answer.vectors, answer.finish_reason) == (((1.0, 0.5), (0.0, 1.0)), "vectors")
        assert (answer.usage.prompt_tokens, answer.usage.output_tokens) == (5, 0)
        sent = server.calls()[0]
        with pytest.raises(errors.EngineRefused, match="no embeddings"):
            use(server.url, lambda e: e.embed(["a", "b", "c"]))
    assert sent.path == "/v1/embeddings"
    assert sent.body["input"] == ["a", "b"]


def test_many_calls_share_the_connections() -> None:
    async def run(engine: OpenAIEngine) -> list[Response]:
        return list(await asyncio.gather(*[engine.generate(request()) for _ in range(64)]))

    began = time.monotonic()
    with Endpoint(completion(delay_s=0.2)) as server:
        assert {r.text for r in use(server.url, run)} == {"yes"}
    assert time.monotonic() - began < 5
    gc.collect()
