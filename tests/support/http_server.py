"""A real HTTP server on localhost that plays a chat endpoint and each of its failures."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Fault = Literal["", "reset", "half", "hang", "close"]


@dataclass(frozen=True)
class Seen:
    """A request the server received. ``body`` is parsed JSON where it was JSON. ``number`` counts from 0."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    number: int


@dataclass(frozen=True)
class Reply:
    """What the server answers.

    ``fault``: ``reset`` ends the connection with a TCP reset before any answer, ``close`` ends it in order, ``half``
    sends the headers and half of the body, ``hang`` answers nothing until the server stops.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    fault: Fault = ""

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(text: str | None = "yes", *, finish_reason: str = "stop", **more: Any) -> Reply:
    """A successful chat completion. ``more`` may hold ``message``, ``choice``, ``usage`` and Reply's own fields."""
    usage = more.pop("usage", {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15})
    message = {"role": "assistant", "content": text} | more.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": finish_reason} | more.pop("choice", {})
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return Reply(body, **more)


def failure(status: int, message: str, *, code: str | None = None, **more: Any) -> Reply:
    """An error in the shape hosted endpoints use."""
    return Reply({"error": {"message": message, "type": "error", "code": code, "param": None}}, status=status, **more)


def model_list(*names: str) -> Reply:
    """What ``GET /models`` answers."""
    return Reply(
        {"object": "list", "data": [{"id": n, "object": "model", "created": 1, "owned_by": "x"} for n in names]}
    )


Answer = Callable[[Seen], Reply]


class Endpoint:
    """The server; a context manager. ``url`` is the base URL, ``seen`` what came in, ``answer`` may be set at any time.

    ``GET /v1/models`` is answered by ``models`` and everything else by ``answer``.
    """

    def __init__(self, answer: Answer | Reply | None = None, *, models: Answer | Reply | None = None) -> None:
        self.seen: list[Seen] = []
        models = models or model_list("m")
        self.models: Answer = always(models) if isinstance(models, Reply) else models
        self.answer: Answer = (
            completion_always if answer is None else always(answer) if isinstance(answer, Reply) else answer
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def calls(self) -> list[Seen]:
        """The requests that were no model listing."""
        return [s for s in self.seen if s.method == "POST"]

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; false where the connection ended."""
        seen = await self._read(reader)
        reply = self.models(seen) if seen.method == "GET" else self.answer(seen)
        if reply.fault == "hang":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(reply.delay_s)
        if reply.fault == "reset":
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if reply.fault == "close":
            return False
        body = reply.encoded()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(reply.headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Reason\r\n{head}\r\n".encode())
        writer.write(body[: len(body) // 2] if reply.fault == "half" else body)
        await writer.drain()
        return reply.fault != "half"

    async def _read(self, reader: asyncio.StreamReader) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        seen = Seen(method, path, headers, body, len(self.seen))
        self.seen.append(seen)
        return seen


def completion_always(_: Seen) -> Reply:
    """A plain success for every request."""
    return completion()


def always(reply: Reply) -> Answer:
    """The same reply for every request."""
    return lambda _: reply


def in_turn(replies: Iterable[Reply]) -> Answer:
    """One reply after the other; the last one repeats."""
    left = list(replies)

    def answer(_: Seen) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer
