"""Any OpenAI-compatible endpoint: hosted models, ``vllm serve``, gateways. Several base URLs are replicas.

The key comes from the environment and is never shown, logged, hashed or put into an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import orjson
from pydantic import Field, field_validator

from dialoom.answer_schema import bounded_json
from dialoom.engine import EngineConfig, EngineIdentity, Request, Response
from dialoom.engines._http_errors import Failure, body_failure, engine_error, read_failure, unknown_model
from dialoom.engines._thinking import split_thinking
from dialoom.errors import EngineBusy, EngineDown, EngineError, EngineRefused, RequestRefused, SchemaError
from dialoom.text import storable
from dialoom.usage import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Send = Callable[["AsyncOpenAI"], Awaitable[Any]]
_RAISE_TIMEOUT = "Look at the endpoint's load, or raise timeout_s."
HOSTED = "https://api.openai.com/v1"


class OpenAIConfig(EngineConfig, frozen=True):
    """Settings of the openai engine."""

    model: str
    """Model name as the endpoint knows it."""
    base_url: str | tuple[str, ...] = HOSTED
    """Base URL, usually ending in /v1; a list of them is a list of replicas of the same model."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; "" sends none. Only the hosted default insists that it is set, or any
    endpoint where this field is given."""
    headers_env: dict[str, str] = Field(default_factory=dict)
    """Further HTTP headers: header name to the environment variable that holds its value."""
    revision: str = ""
    """Your own name for the model's version; part of what an answer is stored under."""
    timeout_s: float = Field(300.0, gt=0)
    """Seconds a call may take in all."""
    structured: Literal["json_schema", "json_object", "vllm_guided", "none"] = "json_schema"
    """How answer schemas are sent: as ``response_format``, as vLLM's own ``structured_outputs``, or not at all."""
    strict_schema: bool = False
    """Sends ``strict: true`` with the schema; hosted endpoints then refuse schemas outside their subset."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of the answer limit; hosted reasoning models want ``max_completion_tokens``."""
    omit: tuple[str, ...] = ()
    """Request fields that the endpoint does not know and that are left out, such as ``temperature`` or ``seed``."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further request fields, such as ``reasoning_effort`` or ``chat_template_kwargs``."""

    @field_validator("base_url")
    @classmethod
    def _plain_urls(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        urls = (value,) if isinstance(value, str) else value
        if not urls:
            raise ValueError("give at least one URL")
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("expected a URL such as http://localhost:8000/v1")
            if parts.username or parts.password or parts.query:
                raise ValueError("no user, password or query may be in a URL; name the key's variable in api_key_env")
        return value

    def urls(self) -> tuple[str, ...]:
        """The base URLs, one a replica."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url


class OpenAIEngine:
    """One endpoint."""

    def __init__(self, config: OpenAIConfig, replica: int = 0) -> None:
        self._config = config
        self._url = config.urls()[replica]
        self._name = f"{config.model}@{urlsplit(self._url).netloc}"
        self._client: AsyncOpenAI | None = None
        self._secrets: tuple[str, ...] = ()
        self._key_is_set = False
        flags = config.model_dump(include={"structured", "strict_schema", "omit", "extra_body"}, exclude_defaults=True)
        self._identity = EngineIdentity("openai", config.model, revision=config.revision, flags=flags)

    @property
    def identity(self) -> EngineIdentity:
        """Model, revision as given, and the settings that shape an answer; URLs and keys are no part of it."""
        return self._identity

    async def start(self) -> None:
        """Open the client and ask for the model list.

        Raises EngineRefused where a key is missing or not accepted, EngineDown where nothing answers. An endpoint
        without a model list is taken as it is.
        """
        from openai import AsyncOpenAI

        config = self._config
        key = os.environ.get(config.api_key_env, "") if config.api_key_env else ""
        insists = "api_key_env" in config.model_fields_set or self._url.startswith(HOSTED)
        if config.api_key_env and not key and insists:
            raise EngineRefused(
                f"the environment variable {config.api_key_env} is not set", where=self._url, hint="Set it to your key."
            )
        headers = {name: _from_environment(variable, self._url) for name, variable in config.headers_env.items()}
        self._secrets = tuple(s for s in (key, *headers.values()) if s)
        self._key_is_set = bool(key)
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        self._client = AsyncOpenAI(
            api_key=key or "none",
            base_url=self._url,
            max_retries=0,
            timeout=config.timeout_s,
            default_headers=headers or None,
        )
        try:
            await self._models()
        except EngineBusy:
            pass
        except (EngineDown, EngineRefused) as error:
            # A key may lack the right to list models and still be good for calls.
            if isinstance(error, EngineDown) or "HTTP 401" in error.what:
                await self.close()
                raise

    async def generate(self, request: Request) -> Response:
        """Send one chat completion. ``run_s`` of the usage is the whole time of the call, the network's included."""
        began = time.perf_counter()
        body = self._body(request)

        def send(client: AsyncOpenAI) -> Awaitable[Any]:
            # As extra fields the messages are not walked through once more: a third of the call's processor time.
            return client.chat.completions.with_raw_response.create(
                model=self._config.model, messages=[], extra_body=body
            )

        answer = self._parsed(await self._sent(send, self._config.timeout_s, model_matters=True))
        return self._response(answer, time.perf_counter() - began)

    async def embed(self, texts: Sequence[str]) -> Response:
        """Send the texts as one embeddings request."""

        def send(client: AsyncOpenAI) -> Awaitable[Any]:
            return client.embeddings.with_raw_response.create(
                model=self._config.model, input=list(texts), encoding_format="float"
            )

        began = time.perf_counter()
        body = self._parsed(await self._sent(send, self._config.timeout_s, model_matters=True))
        run_s = time.perf_counter() - began
        try:
            rows = sorted(body["data"], key=lambda row: row["index"])
            vectors = [[float(x) for x in row["embedding"]] for row in rows]
        except (KeyError, TypeError, ValueError):
            vectors = []
        if len(vectors) != len(texts):
            raise EngineRefused("the answer holds no embeddings", where=self._url, hint="Name an embedding model.")
        return Response.of_vectors(vectors, _usage(body.get("usage") or {}, run_s), self._name)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _body(self, request: Request) -> dict[str, Any]:
        config, sampling = self._config, request.sampling
        body: dict[str, Any] = {
            "model": config.model,
            "messages": [{"role": m.role, "content": storable(m.content)} for m in request.messages],
            "temperature": sampling.temperature,
            config.max_tokens_field: sampling.max_tokens,
        }
        if sampling.top_p != 1.0:
            body["top_p"] = sampling.top_p
        if sampling.seed is not None and sampling.temperature > 0:
            body["seed"] = sampling.seed
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.logprobs:
            body["logprobs"] = True
        if request.tools:
            body["tools"] = [dict(t) for t in request.tools]
        if request.answer_schema is not None:
            body |= self._structured(request.answer_schema)
        body |= config.extra_body
        for name in config.omit:
            body.pop(name, None)
        return body

    def _structured(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        kind = self._config.structured
        if kind == "none":
            return {}
        if kind == "json_object":
            return {"response_format": {"type": "json_object"}}
        try:
            limits = orjson.loads(bounded_json(schema))
        except SchemaError as error:
            raise RequestRefused(error.what, where=f"answer schema {error.where}", hint=error.hint) from None
        if kind == "vllm_guided":
            return {"structured_outputs": {"json": limits}}
        answer = {"name": "answer", "schema": limits, "strict": self._config.strict_schema}
        return {"response_format": {"type": "json_schema", "json_schema": answer}}

    def _response(self, body: Any, run_s: float) -> Response:
        try:
            choice = body["choices"][0]
            message = choice["message"]
            content = message.get("content") or ""
            reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
            if not reasoning:
                reasoning, content = split_thinking(content)
            return Response(
                text=content,
                usage=_usage(body.get("usage") or {}, run_s),
                finish_reason=choice.get("finish_reason") or "stop",
                reasoning=reasoning,
                tool_calls=tuple(_tool_call(c) for c in message.get("tool_calls") or ()),
                logprobs=_logprobs(choice),
                replica=self._name,
            )
        except (KeyError, IndexError, TypeError, AttributeError):
            raise EngineDown("the answer is no chat completion", where=self._url, hint="Check base_url.") from None

    def _parsed(self, raw: bytes) -> Any:
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise EngineDown("the answer is not JSON", where=self._url, hint="Check base_url.") from None
        failure = body_failure(answer)
        if failure is None:
            return answer
        raise self._redacted(engine_error(failure, where=self._url, **self._key()))

    async def _sent(self, send: Send, timeout_s: float, *, model_matters: bool = False) -> bytes:
        """The raw answer; every failure as an EngineError that holds nothing of the request, its headers included."""
        import openai

        if self._client is None:
            raise EngineDown("the engine was not started", where=self._url)
        failure: Failure | None = None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await send(self._client)
                content: bytes = answer.http_response.content
                return content
        except openai.APIStatusError as caught:
            failure = read_failure(caught.status_code, caught.response.headers, caught.response.content)
        except (openai.APITimeoutError, TimeoutError):
            error: EngineError = EngineDown(f"no answer within {timeout_s:g} s", where=self._url, hint=_RAISE_TIMEOUT)
        except openai.APIConnectionError as caught:
            cause = f"{type(caught.__cause__).__name__}: {caught.__cause__}" if caught.__cause__ else str(caught)
            error = EngineDown(f"the connection failed ({cause})", where=self._url, hint="Is it running?")
        # Raised out here, an error does not drag the client's own one along: that one holds the request's headers.
        if failure is not None and failure.status == 404 and model_matters and not failure.moderated:
            error = unknown_model(failure, self._config.model, await self._offered(), where=self._url)
        elif failure is not None:
            error = engine_error(failure, where=self._url, **self._key())
        raise self._redacted(error)

    async def _models(self) -> list[str]:
        try:
            raw = await self._sent(lambda c: c.models.with_raw_response.list(), min(self._config.timeout_s, 30.0))
            return [row["id"] for row in orjson.loads(raw)["data"] if isinstance(row["id"], str)]
        except (orjson.JSONDecodeError, KeyError, TypeError, RequestRefused):
            return []

    async def _offered(self) -> list[str]:
        try:
            return await self._models()
        except EngineError:
            return []

    def _key(self) -> dict[str, Any]:
        return {"key_env": self._config.api_key_env, "key_is_set": self._key_is_set}

    def _redacted(self, error: EngineError) -> EngineError:
        """``error`` without any secret, should the endpoint have sent one back."""
        what = error.what
        for secret in self._secrets:
            what = what.replace(secret, "[key]")
        what = re.sub(r"\b(sk|key)-[\w*.-]{6,}", "[key]", what)
        if what != error.what:
            error.what = what
            error.args = (what, *error.args[1:])
        return error


def _from_environment(variable: str, where: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        what = f"the environment variable {variable} is not set"
        raise EngineRefused(what, where=where, hint="It is named in headers_env.")
    return value


def _usage(usage: Mapping[str, Any], run_s: float) -> Usage:
    prompt = usage.get("prompt_tokens_details") or {}
    output = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        reasoning_tokens=output.get("reasoning_tokens") or 0,
        run_s=run_s,
    )


def _tool_call(call: Mapping[str, Any]) -> dict[str, str]:
    function = call["function"]
    return {"id": call.get("id") or "", "name": function["name"], "arguments": function.get("arguments") or "{}"}


def _logprobs(choice: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    content = (choice.get("logprobs") or {}).get("content") or ()
    return tuple((token["token"], float(token["logprob"])) for token in content)


class OpenAIPlugin:
    """How the runtime makes clients of endpoints."""

    name = "openai"
    config: type[EngineConfig] = OpenAIConfig
    adaptive = True
    """The calls in flight follow what the endpoint takes; ``concurrency`` is the ceiling."""

    def hosted(self, config: OpenAIConfig) -> bool:
        """No: every worker holds its own client."""
        return False

    def create(self, config: OpenAIConfig, *, replica: int) -> OpenAIEngine:
        """The client of base URL number ``replica``, not opened yet."""
        return OpenAIEngine(config, replica)

    def resources(self, config: OpenAIConfig) -> dict[str, float]:
        """Nothing is reserved here."""
        return {"num_cpus": 0.0, "num_gpus": 0.0}

    def replicas(self, config: OpenAIConfig) -> int:
        """One a base URL."""
        return len(config.urls())

    def in_flight(self, config: OpenAIConfig) -> int:
        """``concurrency``, else 64."""
        return config.concurrency or 64


PLUGIN = OpenAIPlugin()
