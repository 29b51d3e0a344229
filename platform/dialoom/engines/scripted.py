"""An engine that answers from a file or a rule: for tests, load and dry runs.

It costs a few microseconds of processor time a call besides its latency. Tokens are counted as a quarter of the
characters, rounded up, for each message and for the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from dialoom.engine import Address, EngineConfig, EngineIdentity, Request, Response
from dialoom.engines._script import Answer, Script, file_digest, load_script
from dialoom.errors import (
    EngineBusy,
    EngineDown,
    EngineError,
    EngineRefused,
    JobError,
    PromptTooLong,
    RequestRefused,
)
from dialoom.registry import find
from dialoom.usage import Usage

Rule = Callable[[Request], str | Response]

_FAILURES: dict[str, type[EngineError]] = {
    e.kind: e for e in (EngineDown, EngineBusy, EngineRefused, RequestRefused, PromptTooLong)
}
_DIMENSIONS = 64


class ScriptedConfig(EngineConfig, frozen=True):
    """Settings of the scripted engine: exactly one of ``answers`` and ``rule``."""

    answers: Path | None = None
    """JSON lines of raw answers by dialogue, turn and call."""
    rule: str | None = None
    """``package.module:function``, called with the Request; returns the answer's text or a whole Response. Set
    ``function.addressed = False`` where the answer depends on nothing but the messages."""
    model: str = "scripted"
    """Name under which calls are logged."""
    latency_s: float = Field(0.0, ge=0)
    """Seconds a call takes."""
    latency_jitter: float = Field(0.0, ge=0, le=1)
    """A call takes ``latency_s`` times a factor in ``1 ± jitter`` that is fixed by seed and address."""
    fail_share: float = Field(0.0, ge=0, le=1)
    """Share of calls that fail, chosen by seed and address."""
    fail_kind: Literal["engine_down", "engine_busy", "engine_refused", "request_refused", "prompt_too_long"] = (
        "engine_down"
    )
    """How they fail."""
    fail_times: int | None = Field(1, ge=1)
    """Tries a chosen call loses before it passes, in each running engine; None: it never passes."""
    seed: int = 0
    """Seed of jitter and failures."""
    context_tokens: int | None = Field(None, ge=1)
    """Prompt tokens and ``max_tokens`` together may not exceed it."""
    in_actor: bool = False
    """Whether each replica gets an actor of its own; else every worker holds the engine."""
    replicas: int = Field(1, ge=1)
    """How many engines."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.answers is None) == (self.rule is None):
            raise ValueError("give exactly one of 'answers' and 'rule'")
        return self


class ScriptedEngine:
    """Answers by address or by rule."""

    def __init__(self, config: ScriptedConfig, replica: int = 0) -> None:
        self._config = config
        self._name = f"{config.model}/{replica}"
        self._seed = str(config.seed)
        self._failed: dict[Address, int] = {}
        self._answer: Callable[[Request], str | Answer | Response] | None = None

    @cached_property
    def identity(self) -> EngineIdentity:
        """Model and a hash of the script, or of the module that holds the rule."""
        config = self._config
        if config.answers is not None:
            revision, addressed = file_digest(config.answers), True
        else:
            rule = _rule(config.rule or "")
            source = inspect.getsourcefile(inspect.unwrap(rule)) if callable(rule) else None
            revision = file_digest(Path(source)) if source else ""
            addressed = bool(getattr(rule, "addressed", True))
        flags = {name: value for name in ("rule", "context_tokens") if (value := getattr(config, name)) is not None}
        return EngineIdentity("scripted", config.model, revision=revision, flags=flags, addressed=addressed)

    async def start(self) -> None:
        """Read the script, or import the rule. Raises EngineRefused."""
        if self._config.answers is not None:
            self._answer = _from_script(load_script(self._config.answers))
        else:
            self._answer = _rule(self._config.rule or "")

    async def generate(self, request: Request) -> Response:
        """The answer at the request's address. Raises EngineError where there is none, and the injected failures."""
        if self._answer is None:
            raise EngineDown("the scripted engine was not started")
        config = self._config
        latency_s = config.latency_s
        if config.latency_jitter:
            latency_s *= 1 + config.latency_jitter * (2 * self._draw("latency", request.address) - 1)
        await asyncio.sleep(latency_s)
        if config.fail_share:
            self._maybe_fail(request.address)
        prompt_tokens = sum([(len(m.content) + 3) // 4 for m in request.messages])
        if config.context_tokens is not None and prompt_tokens + request.sampling.max_tokens > config.context_tokens:
            raise PromptTooLong(
                f"{prompt_tokens} prompt tokens and {request.sampling.max_tokens} for the answer do not fit "
                f"{config.context_tokens}",
                hint="Shorten the context or raise context_tokens.",
            )
        return self._response(self._answer(request), prompt_tokens, latency_s)

    def _response(self, answer: object, prompt_tokens: int, run_s: float) -> Response:
        if isinstance(answer, str):
            usage = Usage(prompt_tokens, 0, (len(answer) + 3) // 4, 0, 0.0, run_s)
            return Response(answer, usage, replica=self._name)
        if isinstance(answer, Response):
            return answer
        if not isinstance(answer, Answer):
            what = f"the rule returned {type(answer).__name__}"
            raise EngineError(what, where=self._config.rule or "", hint="Return str or Response.")
        reasoning_tokens = (len(answer.reasoning) + 3) // 4
        output_tokens = (len(answer.text) + 3) // 4 + reasoning_tokens
        return Response(
            answer.text,
            Usage(prompt_tokens, 0, output_tokens, reasoning_tokens, 0.0, run_s),
            finish_reason=answer.finish_reason,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            logprobs=answer.logprobs,
            replica=self._name,
        )

    def _maybe_fail(self, address: Address) -> None:
        config = self._config
        if self._draw("fail", address) >= config.fail_share:
            return
        if config.fail_times is not None:
            tries = self._failed.get(address, 0)
            if tries >= config.fail_times:
                return
            self._failed[address] = tries + 1
        place = f"dialogue {address.dialogue_id}, turn {address.turn}, call {address.call}"
        raise _FAILURES[config.fail_kind]("failure injected by fail_share", where=place)

    def _draw(self, what: str, address: Address) -> float:
        """A number in [0, 1) that depends on the seed, ``what`` and the address alone."""
        key = "\x1f".join([self._seed, what, *map(str, address)]).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest()) / 2**48

    async def embed(self, texts: Sequence[str]) -> Response:
        """Unit vectors of 64 numbers: words hashed into buckets, so texts with common words are near each other."""
        run_s = self._config.latency_s
        await asyncio.sleep(run_s)
        usage = Usage(sum([(len(text) + 3) // 4 for text in texts]), run_s=run_s)
        return Response.of_vectors([_hashed_words(text) for text in texts], usage)

    async def close(self) -> None:
        """Forget the script."""
        self._answer = None


def _from_script(script: Script) -> Callable[[Request], str | Answer]:
    def answer(request: Request) -> str | Answer:
        return script.answer(request.address)

    return answer


def _rule(path: str) -> Rule:
    try:
        rule = find("engines", path)
    except JobError as error:
        raise EngineRefused(error.what, where="rule", hint=error.hint) from error
    if ":" not in path or not callable(rule):
        raise EngineRefused(f"'{path}' is not a function", where="rule", hint="Write it as package.module:function.")
    return rule  # type: ignore[no-any-return]


def _hashed_words(text: str) -> list[float]:
    vector = [0.0] * _DIMENSIONS
    for word in text.lower().split():
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=2).digest()
        vector[digest[0] % _DIMENSIONS] += 1.0 if digest[1] & 1 else -1.0
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length for v in vector] if length else vector


class ScriptedPlugin:
    """How the runtime makes scripted engines."""

    name = "scripted"
    config: type[EngineConfig] = ScriptedConfig

    def hosted(self, config: ScriptedConfig) -> bool:
        """As the settings say."""
        return config.in_actor

    def create(self, config: ScriptedConfig, *, replica: int) -> ScriptedEngine:
        """An engine that is not started yet."""
        return ScriptedEngine(config, replica)

    def resources(self, config: ScriptedConfig) -> dict[str, float]:
        """Nothing is reserved: it computes nothing."""
        return {"num_cpus": 0.0, "num_gpus": 0.0}

    def replicas(self, config: ScriptedConfig) -> int:
        """As the settings say."""
        return config.replicas

    def in_flight(self, config: ScriptedConfig) -> int:
        """``concurrency``, else 256."""
        return config.concurrency or 256


PLUGIN = ScriptedPlugin()
