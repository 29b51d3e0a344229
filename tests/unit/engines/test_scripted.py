"""The scripted engine: answers by address, rules, failures, tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom import errors
from dialoom.engine import Address, EnginePlugin, Message, Request, Response, Sampling
from dialoom.engines import scripted
from dialoom.engines.scripted import PLUGIN, ScriptedConfig, ScriptedEngine
from dialoom.registry import find
from dialoom.usage import Usage


def write_script(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def request(address: Address, *texts: str, max_tokens: int = 16) -> Request:
    return Request(tuple(Message("user", t) for t in texts), Sampling(max_tokens=max_tokens), address)


def answer(config: ScriptedConfig, *requests: Request) -> list[Response]:
    async def run() -> list[Response]:
        engine = PLUGIN.create(config, replica=0)
        await engine.start()
        return [await engine.generate(r) for r in requests]

    return asyncio.run(run())


def echo(request: Request) -> str:
    return request.messages[-1].content


echo.addressed = False  # type: ignore[attr-defined]


def whole_response(request: Request) -> Response:
    return Response(str(request.address.call), Usage(prompt_tokens=5), finish_reason="length")


def wrong_type(request: Request) -> int:
    return 3


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def rule(function: Callable[..., object]) -> str:
    return f"test_scripted:{function.__name__}"


def test_plugin_satisfies_the_protocol_and_is_found_by_name() -> None:
    plugin: EnginePlugin = PLUGIN
    assert find("engines", "scripted") is plugin
    config = ScriptedConfig(rule="a:b", in_actor=True, replicas=3)
    assert plugin.hosted(config)
    assert plugin.replicas(config) == 3
    assert plugin.in_flight(config) == 256
    assert plugin.in_flight(ScriptedConfig(rule="a:b", concurrency=7)) == 7
    assert set(plugin.resources(config).values()) == {0.0}


def test_calls_take_answers_by_address(tmp_path: Path) -> None:
    script = write_script(
        tmp_path / "s.jsonl",
        {"dialogue_id": "d", "turn": 0, "answers": ["first", "second"]},
        {"dialogue_id": "d", "turn": 2, "answers": [""]},
    )
    got = answer(
        ScriptedConfig(answers=script),
        request(Address("d", 0, 1), "x"),
        request(Address("d", 0, 0), "x"),
        request(Address("d", 2, 0, "m", "c", 4), "x"),
    )
    assert [g.text for g in got] == ["second", "first", ""]


def test_the_line_with_most_matching_fields_is_taken(tmp_path: Path) -> None:
    script = write_script(
        tmp_path / "s.jsonl",
        {"dialogue_id": "d", "turn": 0, "answers": ["any"]},
        {"dialogue_id": "d", "turn": 0, "method": "m", "answers": ["method"]},
        {"dialogue_id": "d", "turn": 0, "method": "m", "trial": 1, "answers": ["trial"]},
        {"dialogue_id": "d", "turn": 0, "cell": "k=3", "method": "m", "trial": 1, "answers": ["all"]},
    )
    units = [("n", "", 0), ("m", "", 0), ("m", "", 1), ("m", "k=3", 1)]
    got = answer(ScriptedConfig(answers=script), *[request(Address("d", 0, 0, *u), "x") for u in units])
    assert [g.text for g in got] == ["any", "method", "trial", "all"]


@pytest.mark.parametrize(
    ("address", "message"),
    [(Address("d", 0, 2), "2 answers"), (Address("d", 1, 0), "no line"), (Address("e", 0, 0), "no line")],
)
def test_a_missing_answer_names_the_address(tmp_path: Path, address: Address, message: str) -> None:
    script = write_script(tmp_path / "s.jsonl", {"dialogue_id": "d", "turn": 0, "answers": ["a", "b"]})
    with pytest.raises(errors.EngineError, match=message) as caught:
        answer(ScriptedConfig(answers=script), request(address, "x"))
    assert f"dialogue {address.dialogue_id}, turn {address.turn}, call {address.call}" in caught.value.where
    assert not caught.value.retriable


def test_answers_may_carry_more_than_text(tmp_path: Path) -> None:
    line = {
        "dialogue_id": "d",
        "turn": 0,
        "answers": [
            {"text": "abcde", "reasoning": "12345678", "finish_reason": "length", "logprobs": [["a", -0.5]]},
            {"tool_calls": [{"name": "f", "arguments": "{}"}], "finish_reason": "tool_calls"},
        ],
    }
    got = answer(
        ScriptedConfig(answers=write_script(tmp_path / "s.jsonl", line)),
        request(Address("d", 0, 0), "x"),
        request(Address("d", 0, 1), "x"),
    )
    assert (got[0].text, got[0].reasoning, got[0].finish_reason) == ("abcde", "12345678", "length")
    assert (got[0].usage.output_tokens, got[0].usage.reasoning_tokens) == (4, 2)
    assert got[0].logprobs == (("a", -0.5),)
    assert got[1].tool_calls == ({"name": "f", "arguments": "{}"},)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ('{"dialogue_id": "d", "turn": 0, "answers": []}\n{oops', "s.jsonl:2", "not JSON"),
        ('{"dialogue_id": "d", "turn": "zero", "answers": []}', "s.jsonl:1", "turn"),
        ('\n\n{"dialogue_id": "d", "answers": []}', "s.jsonl:3", "turn"),
        ('{"dialogue_id": "d", "turn": 0, "answers": [], "tern": 1}', "s.jsonl:1", "tern"),
        ('{"dialogue_id": "d", "turn": 0, "answers": []}\n' * 2, "s.jsonl:2", "line 1"),
    ],
)
def test_a_wrong_script_is_refused_with_file_and_line(tmp_path: Path, text: str, place: str, what: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(errors.EngineRefused, match=what) as caught:
        answer(ScriptedConfig(answers=path))
    assert caught.value.where.endswith(place)


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    config = ScriptedConfig(answers=tmp_path / "none.jsonl")
    with pytest.raises(errors.EngineRefused, match="No such file"):
        answer(config)
    with pytest.raises(errors.EngineRefused, match="No such file"):
        _ = PLUGIN.create(config, replica=0).identity


def test_identity_follows_the_script(tmp_path: Path) -> None:
    path = write_script(tmp_path / "s.jsonl", {"dialogue_id": "d", "turn": 0, "answers": ["a"]})
    config = ScriptedConfig(answers=path)
    before = PLUGIN.create(config, replica=0).identity
    assert before.addressed
    assert before == PLUGIN.create(config, replica=1).identity
    write_script(path, {"dialogue_id": "d", "turn": 0, "answers": ["b"]})
    assert PLUGIN.create(config, replica=0).identity.revision != before.revision


def test_rules_answer_with_text_or_a_whole_response() -> None:
    request_ = request(Address("d", 0, 3), "one", "two")
    assert answer(ScriptedConfig(rule=rule(echo)), request_)[0].text == "two"
    assert answer(ScriptedConfig(rule=rule(whole_response)), request_)[0] == whole_response(request_)
    with pytest.raises(errors.EngineError, match="returned int"):
        answer(ScriptedConfig(rule=rule(wrong_type)), request_)


def test_a_rule_says_whether_it_reads_the_address() -> None:
    assert not PLUGIN.create(ScriptedConfig(rule=rule(echo)), replica=0).identity.addressed
    identity = PLUGIN.create(ScriptedConfig(rule=rule(whole_response)), replica=0).identity
    assert identity.addressed
    assert identity.revision


@pytest.mark.parametrize("path", ["no.such.module:f", "test_scripted:no_such", "echo", "test_scripted:__name__"])
def test_a_rule_that_is_no_function_is_refused(path: str) -> None:
    with pytest.raises(errors.EngineRefused):
        answer(ScriptedConfig(rule=path))


@pytest.mark.parametrize("fields", [{}, {"answers": "a", "rule": "b:c"}])
def test_exactly_one_source_of_answers(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        ScriptedConfig(**fields)


@given(st.lists(st.text(), min_size=1), st.integers(1, 50))
def test_tokens_are_a_quarter_of_the_characters(texts: Sequence[str], max_tokens: int) -> None:
    expected = sum(-(-len(t) // 4) for t in texts)
    fits = ScriptedConfig(rule=rule(echo), context_tokens=expected + max_tokens)
    sent = request(Address("d", 0, 0), *texts, max_tokens=max_tokens)
    got = answer(fits, sent)[0]
    assert (got.usage.prompt_tokens, got.usage.output_tokens) == (expected, -(-len(texts[-1]) // 4))
    if expected + max_tokens > 1:
        with pytest.raises(errors.PromptTooLong):
            answer(fits.model_copy(update={"context_tokens": expected + max_tokens - 1}), sent)


def failing(config: ScriptedConfig, addresses: Sequence[Address], tries: int = 1) -> list[list[str]]:
    """The error kinds, or "" for an answer, of each address at each try."""

    async def run() -> list[list[str]]:
        engine = ScriptedEngine(config)
        await engine.start()
        rows = []
        for address in addresses:
            row = []
            for _ in range(tries):
                try:
                    await engine.generate(request(address, "x"))
                    row.append("")
                except errors.EngineError as error:
                    row.append(error.kind)
            rows.append(row)
        return rows

    return asyncio.run(run())


@pytest.mark.parametrize("kind", sorted(scripted._FAILURES))
def test_failures_are_chosen_by_seed_and_address(kind: str) -> None:
    addresses = [Address(f"d{i}", i % 7, i % 3) for i in range(400)]
    config = ScriptedConfig.model_validate({"rule": rule(echo), "fail_share": 0.3, "fail_kind": kind, "seed": 1})
    first = failing(config, addresses)
    assert first == failing(config, addresses)
    assert first != failing(config.model_copy(update={"seed": 2}), addresses)
    failed = [row for row in first if row == [kind]]
    assert 0.2 * len(addresses) < len(failed) < 0.4 * len(addresses)


def test_a_chosen_call_passes_after_its_tries() -> None:
    addresses = [Address("d", t, 0) for t in range(5)]
    config = ScriptedConfig(rule=rule(echo), fail_share=1, fail_times=2)
    assert failing(config, addresses, tries=4) == [["engine_down", "engine_down", "", ""]] * 5
    always = config.model_copy(update={"fail_times": None})
    assert failing(always, addresses, tries=4) == [["engine_down"] * 4] * 5


def test_calls_wait_together_and_jitter_is_bounded() -> None:
    config = ScriptedConfig(rule=rule(echo), latency_s=0.05, latency_jitter=0.5)

    async def run() -> list[Response]:
        engine = ScriptedEngine(config)
        await engine.start()
        return await asyncio.gather(*[engine.generate(request(Address("d", t, 0), "x")) for t in range(50)])

    began = time.monotonic()
    seconds = [r.usage.run_s for r in asyncio.run(run())]
    assert time.monotonic() - began < 1.0
    assert len(set(seconds)) == 50
    assert all(0.025 <= s <= 0.075 for s in seconds)


def test_a_call_costs_little_processor_time(tmp_path: Path) -> None:
    script = write_script(
        tmp_path / "s.jsonl", *[{"dialogue_id": f"d{i}", "turn": 0, "answers": ["x" * 200]} for i in range(2000)]
    )
    requests = [request(Address(f"d{i}", 0, 0), *["y" * 500] * 6) for i in range(2000)]

    async def run() -> float:
        engine = ScriptedEngine(ScriptedConfig(answers=script))
        await engine.start()
        began = time.process_time()
        for r in requests:
            await engine.generate(r)
        return (time.process_time() - began) / len(requests)

    assert asyncio.run(run()) < 30e-6


def test_embeddings_are_near_for_common_words() -> None:
    texts = ["a cheap hotel", "cheap hotel", "train", ""]
    answer = asyncio.run(ScriptedEngine(ScriptedConfig(rule="a:b")).embed(texts))
    first, second, third, empty = answer.vectors
    assert answer.usage.prompt_tokens == 4 + 3 + 2

    def dot(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert dot(first, first) == pytest.approx(1)
    assert dot(first, second) > 0.6 > abs(dot(first, third))
    assert not any(empty)


def test_an_engine_that_was_not_started_says_so() -> None:
    with pytest.raises(errors.EngineDown, match="not started"):
        asyncio.run(ScriptedEngine(ScriptedConfig(rule="a:b")).generate(request(Address("d", 0, 0), "x")))
