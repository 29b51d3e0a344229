"""The call log: every model call stored once, found again by digest in this run and in later ones.

A segment is a file of records: 4 bytes length, 4 bytes CRC-32, then the digest (16 bytes) and the response as JSON. A
torn or damaged record ends the reading of its segment; what stands before it counts. One writer owns a segment.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from dialoom.engine import EngineIdentity, Message, Request, Response, Sampling
from dialoom.runtime.folder import RunFolder, storage_errors
from dialoom.text import storable, storable_tree
from dialoom.usage import Usage

log = logging.getLogger(__name__)

SUFFIX = ".calls"
LEAST_LOGPROB = -9999.0
"""Stands for a probability of zero, whose logarithm JSON cannot hold; hosted endpoints use the same figure."""
_HEAD = struct.Struct("<II")


class Digests:
    """Digests of messages and calls. Static messages and answer schemas are hashed once."""

    def __init__(self, identities: Mapping[str, EngineIdentity]) -> None:
        self._identities = {
            name: orjson.dumps([i.engine, i.model, i.revision, i.version, dict(i.flags)], option=orjson.OPT_SORT_KEYS)
            for name, i in identities.items()
        }
        self._addressed = {name for name, i in identities.items() if i.addressed}
        self._messages: dict[Message, str] = {}
        self._trees: dict[int, tuple[Any, str, str]] = {}
        self._samplings: dict[Sampling, str] = {}

    def message(self, message: Message) -> str:
        """Hex digest (32 characters) of role and content."""
        known = self._messages.get(message)
        if known is None:
            body = f"{message.role}\0{message.content}".encode("utf-8", "surrogatepass")
            known = hashlib.blake2b(body, digest_size=16).hexdigest()
            if len(self._messages) > 20_000:
                self._messages.clear()
            self._messages[message] = known
        return known

    def call(self, engine: str, request: Request, message_ids: Iterable[str]) -> bytes:
        """16 bytes over engine identity, messages, answer schema, tools, sampling and trial.

        The address takes part only for engines whose answers depend on it.
        """
        h = hashlib.blake2b(self._identities[engine], digest_size=16)
        h.update("".join(message_ids).encode())
        h.update(f"|{self.sampling(request.sampling)}|{request.address.trial}|".encode())
        if request.answer_schema is not None:
            h.update(self.tree(request.answer_schema)[0].encode())
        if request.tools:
            h.update(self.tree(request.tools)[0].encode())
        if engine in self._addressed:
            h.update(repr(tuple(request.address)).encode("utf-8", "backslashreplace"))
        return h.digest()

    def tree(self, tree: Any) -> tuple[str, str]:
        """(hex digest of 32 characters, JSON text) of an answer schema or tool list; the same object is hashed once."""
        known = self._trees.get(id(tree))
        if known is None or known[0] is not tree:
            if len(self._trees) > 5_000:
                self._trees.clear()
            body = orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
            known = self._trees[id(tree)] = (tree, hashlib.blake2b(body, digest_size=16).hexdigest(), body.decode())
        return known[1], known[2]

    def sampling(self, sampling: Sampling) -> str:
        """Sampling parameters as JSON text."""
        known = self._samplings.get(sampling)
        if known is None:
            if len(self._samplings) > 5_000:
                self._samplings.clear()
            known = self._samplings[sampling] = orjson.dumps(asdict(sampling)).decode()
        return known


class CallLog:
    """The records of this run and of the runs it may reuse; appends to one segment of its own.

    ``append`` only buffers; ``flush`` writes the buffer out. Not for use by two event loops at once.
    """

    def __init__(self, folder: RunFolder, segment: str, sources: Iterable[RunFolder] = ()) -> None:
        self._folder = folder
        self._name = f"calls/{segment}{SUFFIX}"
        self._path = folder.fetch(self._name)
        self._appends = 0
        self._known: dict[bytes, tuple[Path, int, int] | Response] = {}
        self._buffer: list[tuple[bytes, bytes]] = []
        self._writing = asyncio.Lock()
        self._taken_over: set[str] = set()
        for source in sources:
            for name in source.names("calls", SUFFIX):
                self._learn(source.fetch(name))

    def _learn(self, path: Path) -> None:
        for digest, offset, size in scan(path):
            self._known.setdefault(digest, (path, offset, size))

    async def take_over(self, segment: str) -> None:
        """Learn what a lost writer of this run recorded, unless it was done before. Raises StorageError."""
        if segment in self._taken_over:
            return
        self._taken_over.add(segment)
        for name in self._folder.names("calls", SUFFIX):
            if name.startswith(f"calls/{segment}"):
                path = await asyncio.to_thread(self._folder.fetch, name)
                for digest, offset, size in await asyncio.to_thread(_scanned, path):
                    self._known.setdefault(digest, (path, offset, size))

    def digests(self) -> list[bytes]:
        """Every digest it holds."""
        return list(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, digest: bytes) -> Response | None:
        """The stored response, or None: also where its segment cannot be read any more."""
        found = self._known.get(digest)
        if found is None or isinstance(found, Response):
            return found
        path, offset, size = found
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return decode_response(file.read(size))
        except (OSError, ValueError, TypeError) as error:  # gone or damaged since it was read: the call is paid again
            log.warning("a recorded call cannot be read again (%s): %s", path, error)
            del self._known[digest]
            return None

    def append(self, digest: bytes, response: Response) -> None:
        """Store a response; a digest that is stored already is left as it is."""
        if digest in self._known:
            return
        body = digest + encode_response(response)
        self._known[digest] = response
        self._buffer.append((digest, _HEAD.pack(len(body), zlib.crc32(body)) + body))

    async def flush(self) -> None:
        """Write what is buffered, and make it safe on disk. Raises StorageError; the buffer is kept then."""
        async with self._writing:
            buffered, self._buffer = self._buffer, []
            try:
                offset = await asyncio.to_thread(self._append, buffered)
            except BaseException:
                self._buffer = buffered + self._buffer
                raise
            self._stored(buffered, offset)

    def write(self) -> None:
        """:meth:`flush` for programs without an event loop."""
        buffered = self._buffer
        offset = self._append(buffered)
        self._buffer = []
        self._stored(buffered, offset)

    def _append(self, buffered: list[tuple[bytes, bytes]]) -> int:
        if not buffered:
            return 0
        data = b"".join(record for _, record in buffered)
        return self._folder.append(self._name, data, self._appends)

    def _stored(self, buffered: list[tuple[bytes, bytes]], offset: int) -> None:
        """From here on the answers lie on disk, not in memory."""
        self._appends += bool(buffered)
        for digest, record in buffered:
            self._known[digest] = (self._path, offset + _HEAD.size + 16, len(record) - _HEAD.size - 16)
            offset += len(record)


def scan(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """(digest, offset of the response, its size) of every whole record of a segment, up to the first torn one."""
    with storage_errors(path), path.open("rb") as file:
        offset, end = 0, path.stat().st_size
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            size, crc = _HEAD.unpack(head)
            if not 16 <= size <= end - offset - _HEAD.size:
                return
            body = file.read(size)
            if len(body) < size or zlib.crc32(body) != crc:
                return
            yield body[:16], offset + _HEAD.size + 16, size - 16
            offset += _HEAD.size + size


def _scanned(path: Path) -> list[tuple[bytes, int, int]]:
    return list(scan(path))


def kept(response: Response) -> Response:
    """``response`` as it comes back from the log: texts storable, log probabilities finite. What is used live, too."""
    logprobs = tuple((storable(t), p if math.isfinite(p) else LEAST_LOGPROB) for t, p in response.logprobs)
    return replace(
        response,
        text=storable(response.text),
        reasoning=storable(response.reasoning),
        finish_reason=storable(response.finish_reason),
        tool_calls=tuple(storable_tree(response.tool_calls)) if response.tool_calls else (),
        logprobs=logprobs,
    )


def encode_response(response: Response) -> bytes:
    """A response, already in the form of :func:`kept`, as JSON; ``attempts`` and ``replica`` are left out."""
    u = response.usage
    record = [
        response.text,
        response.finish_reason,
        [u.prompt_tokens, u.cached_tokens, u.output_tokens, u.reasoning_tokens, u.queue_s, u.run_s],
        response.reasoning,
        response.tool_calls,
        response.logprobs,
    ]
    return orjson.dumps(record)


def decode_response(data: bytes) -> Response:
    """Inverse of :func:`encode_response`."""
    text, finish, usage, reasoning, tool_calls, logprobs = orjson.loads(data)
    return Response(
        text=text,
        usage=Usage(*usage),
        finish_reason=finish,
        reasoning=reasoning,
        tool_calls=tuple(tool_calls),
        logprobs=tuple((t, p) for t, p in logprobs),
    )
