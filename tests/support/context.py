"""A context in one process, with a real engine behind it and nothing else: what methods are tested in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dialoom.dialogue import Dialogue
from dialoom.engine import Address, Engine, Message, Request, Response, Sampling
from dialoom.method import Call, TurnTrace
from dialoom.schema import Schema
from dialoom.unit import UnitKey
from dialoom.usage import Usage


class InProcess:
    """Implements :class:`dialoom.method.Context`; keeps every request, call and trace."""

    def __init__(self, dialogue: Dialogue, schema: Schema, engine: Engine) -> None:
        self.unit = UnitKey(dialogue.dialogue_id, "method")
        self.schema = schema.subset(dialogue.services) if dialogue.services else schema
        self.requests: list[Request] = []
        self.calls: list[Call] = []
        self.traces: list[TurnTrace] = []
        self._engine = engine
        self._next: dict[int, int] = {}

    async def generate(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        turn: int,
        answer_schema: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Call:
        """One call of the engine, with the address that the runtime would give it."""
        index = self._next.get(turn, 0)
        self._next[turn] = index + 1
        request = Request(
            tuple(messages),
            Sampling(max_tokens=max_tokens or 256, stop=tuple(stop)),
            Address(self.unit.dialogue_id, turn, index, self.unit.method),
            answer_schema,
            tuple(tools),
        )
        self.requests.append(request)
        call = Call(await self._engine.generate(request), index)
        self.calls.append(call)
        return call

    async def embed(self, role: str, texts: Sequence[str], *, turn: int = 0) -> list[list[float]]:
        """The engine's own."""
        return [list(vector) for vector in (await self._engine.embed(texts)).vectors]

    def turn(self, trace: TurnTrace) -> None:
        """Keep it."""
        self.traces.append(trace)


class Answers:
    """An engine that gives the texts of a list, or what a function says, without a file or a clock."""

    def __init__(self, answers: Sequence[str | Response] | Callable[[Request], str]) -> None:
        self._answers = answers

    async def generate(self, request: Request) -> Response:
        """The next answer. Raises IndexError where the list is used up."""
        answer = self._answers(request) if callable(self._answers) else self._answers[self._taken()]
        return Response(answer, Usage()) if isinstance(answer, str) else answer

    _count = 0

    def _taken(self) -> int:
        self._count += 1
        return self._count - 1

    async def embed(self, texts: Sequence[str]) -> Response:
        """No vectors."""
        return Response.of_vectors([() for _ in texts], Usage())


async def scripted(path: Path) -> Engine:
    """The scripted engine on a file of answers, started."""
    from dialoom.engines.scripted import ScriptedConfig, ScriptedEngine

    engine = ScriptedEngine(ScriptedConfig(answers=path))
    await engine.start()
    return engine
