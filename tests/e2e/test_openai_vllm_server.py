"""The openai engine against vLLM's own server with the default model."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dialoom import errors
from dialoom.engine import Address, Message, Request, Response, Sampling
from dialoom.engines.openai import PLUGIN, OpenAIConfig
from dialoom.models import prepare_default_model

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs the extra cpu or gpu"),
]

KEY = "a-key-for-this-test"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["city", "n"],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["--served-model-name", "smol", "--enforce-eager", "--kv-cache-memory-bytes", str(2**29)]
    limits = "--structured-outputs-config"
    structured = [f"{limits}.backend=xgrammar", f"{limits}.disable_any_whitespace=true"]
    model = ["--model", str(prepare_default_model()), "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as said:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *model, *settings, *structured],
            stdout=said,
            stderr=said,
            env=os.environ | {"VLLM_API_KEY": KEY, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
            start_new_session=True,
        )
    try:
        _wait_for(server, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 500
    while server.poll() is None and time.monotonic() < deadline:
        with socket.socket() as trial:
            trial.settimeout(1)
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("WRONG_KEY", "something else")


def ask(
    url: str, text: str, *, schema: dict[str, Any] | None = None, max_tokens: int = 48, **settings: Any
) -> Response:
    config = OpenAIConfig.model_validate({"model": "smol", "base_url": url, "api_key_env": "THE_KEY"} | settings)
    messages = (Message("system", "You are a helpful assistant."), Message("user", text))

    async def run() -> Response:
        engine = PLUGIN.create(config, replica=0)
        await engine.start()
        try:
            return await engine.generate(Request(messages, Sampling(max_tokens=max_tokens), Address("d", 0, 0), schema))
        finally:
            await engine.close()

    return asyncio.run(run())


def test_an_answer_with_its_usage(url: str) -> None:
    got = ask(url, "What is the capital of France?")
    assert "Paris" in got.text
    assert got.finish_reason == "stop"
    assert got.usage.prompt_tokens == 27
    assert 1 < got.usage.output_tokens < 48


@pytest.mark.parametrize("structured", ["json_schema", "vllm_guided"])
def test_answers_follow_their_schema_without_white_space(url: str, structured: str) -> None:
    got = ask(url, "Describe Paris as JSON.", schema=SCHEMA, structured=structured, max_tokens=400)
    assert set(json.loads(got.text)) == {"city", "n"}
    assert '":' in got.text and '": ' not in got.text
    assert got.finish_reason == "stop"


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"model": "smoll"}, errors.EngineRefused, "Did you mean 'smol'?"),
        ({"api_key_env": "WRONG_KEY"}, errors.EngineRefused, "WRONG_KEY is not accepted"),
        ({"text": "word " * 9000}, errors.PromptTooLong, "8192"),
        ({"max_tokens": 9000}, errors.PromptTooLong, "8192"),
        ({"extra_body": {"temperature": "hot"}}, errors.RequestRefused, "temperature"),
    ],
)
def test_its_refusals_are_understood(url: str, settings: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(errors.EngineError) as caught:
        ask(url, **{"text": "hi"} | settings)
    assert type(caught.value) is kind
    assert said in str(caught.value)
