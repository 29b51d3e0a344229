"""The one protocol behind every model: a request in, a response out.

An engine lives in a worker (``openai``) or in an actor of its own (``vllm``); callers cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from dialoom.usage import Usage


class Message(NamedTuple):
    """One chat message. ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. Temperature 0 is greedy; ``seed`` is sent only where temperature is above 0."""

    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False


class Address(NamedTuple):
    """Which call of which unit a request is: for scripted answers, sticky routing and logs; never sent to a model."""

    dialogue_id: str
    turn: int
    """Index of the turn in the dialogue, from 0, all speakers counted."""
    call: int
    """Number of the call within the turn, from 0."""
    method: str = ""
    cell: str = ""
    trial: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. ``answer_schema`` is a JSON Schema the answer must follow, ``tools`` OpenAI-style definitions.

    An engine that cannot constrain its output ignores ``answer_schema``; whoever parses must cope. ``vectors`` asks for
    the vectors of the messages' contents instead of an answer: :func:`answer` sends it to :meth:`Engine.embed`.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    address: Address
    answer_schema: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    vectors: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. ``finish_reason`` is ``stop``, ``length``, ``tool_calls``, ``vectors`` or the engine's own word.

    ``text`` never holds thinking text: that is ``reasoning``. ``logprobs`` are (token, log probability) on request.
    ``vectors`` are what :meth:`Engine.embed` gave, one a text: the runtime keeps and counts them as other answers.
    ``attempts`` counts tries, this one included; ``replica`` says which replica answered.
    """

    text: str
    usage: Usage
    finish_reason: str = "stop"
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[tuple[str, float], ...] = ()
    vectors: tuple[tuple[float, ...], ...] = ()
    attempts: int = 1
    replica: str = ""

    @classmethod
    def of_vectors(cls, vectors: Iterable[Iterable[float]], usage: Usage, replica: str = "") -> Response:
        """The answer of :meth:`Engine.embed`; ``usage`` has the tokens of all texts as prompt tokens."""
        return cls("", usage, "vectors", vectors=tuple(map(tuple, vectors)), replica=replica)


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What decides an engine's answers; part of every call digest and of the run's tags.

    ``addressed`` is true where answers depend on the call's address and not on its messages alone (scripts): then the
    address takes part in the digest too.
    """

    engine: str
    model: str
    revision: str = ""
    version: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    addressed: bool = False


class Engine(Protocol):
    """A running model.

    ``generate`` raises :class:`~dialoom.errors.EngineError` and its kinds, never a client library's own exceptions. It
    makes one try: retries, routing and the call log belong to the runtime.
    """

    @property
    def identity(self) -> EngineIdentity:
        """What it is; known before ``start``, and without loading a model."""

    async def start(self) -> None:
        """Load what is needed. Raises EngineDown or EngineRefused with what to do, and keeps nothing then.

        Called before any call, and again after it has raised.
        """

    async def generate(self, request: Request) -> Response:
        """Answer one request; many run at once."""

    async def embed(self, texts: Sequence[str]) -> Response:
        """One vector a text (:meth:`Response.of_vectors`). Raises what ``generate`` raises, and EngineRefused where the
        model has no embeddings.
        """

    async def close(self) -> None:
        """Free everything; no call is under way."""


async def answer(engine: Engine, request: Request) -> Response:
    """What ``engine`` says to ``request``, text or vectors. Raises what the engine raises."""
    if request.vectors:
        return await engine.embed([message.content for message in request.messages])
    return await engine.generate(request)


class EngineConfig(BaseModel, extra="forbid", frozen=True):
    """Fields every engine's settings share; each engine subclasses it. Unknown fields are refused."""

    concurrency: int | None = None
    """Calls in flight at most, per replica; None takes the engine's own figure."""
    price: str | None = None
    """Name of its price, in the job's ``prices`` or dialoom's table; None: no price is known and cost is null."""


class EnginePlugin(Protocol):
    """What an engine's module offers as ``PLUGIN``."""

    name: str
    config: type[EngineConfig]

    def hosted(self, config: Any) -> bool:
        """Whether each replica gets an actor of its own; else every worker holds the engine itself."""

    def create(self, config: Any, *, replica: int) -> Engine:
        """An engine that is not started yet."""

    def resources(self, config: Any) -> dict[str, float]:
        """Ray resources of one replica: ``num_cpus``, ``num_gpus``. A pure function."""

    def replicas(self, config: Any) -> int:
        """How many replicas the settings ask for."""

    def in_flight(self, config: Any) -> int:
        """Calls in flight at most, per replica."""
