"""An engine that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dialoom.engine import EngineIdentity, Request, Response
from dialoom.usage import Usage


class Told:
    """Answers or raises what it was told, call after call; the last word holds on. While ``hold`` is set it waits."""

    identity = EngineIdentity("told", "m")

    def __init__(self, *words: Exception | str) -> None:
        self.calls: list[Request] = []
        self._words = list(words) or ["ok"]
        self.hold: asyncio.Event | None = None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def embed(self, texts: Sequence[str]) -> Response:
        word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        if isinstance(word, Exception):
            raise word
        return Response.of_vectors([[float(len(t))] for t in texts], Usage(sum(map(len, texts))))

    async def generate(self, request: Request) -> Response:
        self.calls.append(request)
        if self.hold is not None:
            await self.hold.wait()
        word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        if isinstance(word, Exception):
            raise word
        return Response(word, Usage(10, 4, 3))
