"""The call log: every model call stored once, found again by digest in this run and in later ones.

A segment is a file of records: 4 bytes length, 4 bytes CRC-32, then the digest (16 bytes) and the response as JSON. A
torn or damaged record ends the reading of its segment; what stands before it counts. One writer owns a segment. The
response is an array of six fields; a seventh holds vectors, where there are any: base64 of little-endian doubles; an
eighth names the engine that was paid for it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from dialoom.engine import Address, EngineIdentity, Message, Request, Response, Sampling
from dialoom.errors import LimitReached, PromptTooLong, RequestRefused, StorageError
from dialoom.runtime.callindex import CallIndex, Place
from dialoom.runtime.folder import RunFolder, storage_errors
from dialoom.text import storable, storable_tree
from dialoom.usage import Usage

log = logging.getLogger(__name__)

SUFFIX = ".calls"
LEAST_LOGPROB = -9999.0
"""Stands for a probability of zero, whose logarithm JSON cannot hold; hosted endpoints use the same figure."""
_HEAD = struct.Struct("<II")
Refusal = PromptTooLong | RequestRefused | LimitReached
_REFUSALS: dict[str, type[Refusal]] = {e.kind: e for e in (PromptTooLong, RequestRefused, LimitReached)}


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

        The address takes part only for engines whose answers depend on it. Neither trial nor address decides a vector.
        """
        if request.vectors:
            return self._vectors(engine, message_ids)
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

    def _vectors(self, engine: str, message_ids: Iterable[str]) -> bytes:
        h = hashlib.blake2b(self._identities[engine], digest_size=16)
        h.update(f"vectors|{''.join(message_ids)}".encode())
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

    ``append`` only buffers; ``flush`` writes the buffer out. Not for use by two event loops at once. ``index`` is the
    index over all ``sources``, if one was made; else their segments are read here.
    """

    def __init__(
        self, folder: RunFolder, segment: str, sources: Iterable[RunFolder] = (), *, index: Path | None = None
    ) -> None:
        self._folder = folder
        self._name = f"calls/{segment}{SUFFIX}"
        self._appends = 0
        self._fresh: dict[bytes, Response] = {}
        self._index = CallIndex()
        self._unreadable: set[bytes] = set()
        self._ambiguous: set[bytes] = set()
        self._preferred: Mapping[tuple[bytes, Address], tuple[str, float]] = {}
        self._buffer: list[tuple[bytes, bytes]] = []
        self._writing = asyncio.Lock()
        self._taken_over: set[str] = set()
        if index is not None:
            self._index.load(index)
        else:
            self._index.learn(
                (self._index.file(source, name, path := source.fetch(name)), scan(path))
                for source in sources
                for name in source.names("calls", SUFFIX)
            )
        self._number = self._index.file(folder, self._name, folder.fetch(self._name))

    async def take_over(self, segment: str) -> None:
        """Learn what a lost writer of this run recorded, unless it was done before. Raises StorageError."""
        if segment in self._taken_over:
            return
        self._taken_over.add(segment)
        for name in self._folder.names("calls", SUFFIX):
            if name.startswith(f"calls/{segment}"):
                path = await asyncio.to_thread(self._folder.fetch, name)
                records = await asyncio.to_thread(_scanned, path)
                self._index.learn([(self._index.file(self._folder, name, path), iter(records))])

    def digests(self) -> list[bytes]:
        """Every digest it holds."""
        return list(dict.fromkeys([*self._index.digests(), *self._fresh]))

    def __len__(self) -> int:
        return len(self._index) + len(self._fresh)

    def get(self, digest: bytes, address: Address | None = None) -> Response | None:
        """The stored response, or None: also where its segment cannot be read any more.

        Of several, that which :meth:`prefer` named for ``address``; else the oldest.
        """
        fresh = self._fresh.get(digest)
        if fresh is not None or digest in self._unreadable:
            return fresh
        places = self._index.find(digest)
        found = (response for place in places if (response := self._read(place)) is not None)
        if digest in self._ambiguous and address is not None:
            wanted = self._preferred.get((digest, address))
            responses = list(found)
            return next((r for r in responses if (r.text, r.usage.run_s) == wanted), None) or next(
                iter(responses), None
            )
        response = next(found, None)
        if response is None and places:
            self._unreadable.add(digest)  # until it is paid again
        return response

    def repeated(self) -> set[bytes]:
        """Digests with several records: one call that was paid more than once, with answers that may differ."""
        return self._index.repeated()

    def prefer(self, answers: Mapping[tuple[bytes, Address], tuple[str, float]]) -> None:
        """Name the answers (text, ``run_s``) that calls at these addresses had, of digests with several records."""
        self._preferred = answers
        self._ambiguous = {digest for digest, _ in answers}

    def refuse(self, digest: bytes, error: Refusal) -> None:
        """Store that the engine refused the call, or that time was up: for replays, which ask no engine."""
        key = refusal_key(digest)
        error.__dict__["digest"] = key.hex()
        words = f"{error.where}\n{error.hint}"
        self.append(key, Response(storable(error.what), Usage(), f"refused:{error.kind}", reasoning=storable(words)))

    def refusal(self, digest: bytes) -> Refusal | None:
        """The recorded refusal of the call, if there is one."""
        key = refusal_key(digest)
        stored = self.get(key)
        kind = None if stored is None else _REFUSALS.get(stored.finish_reason.removeprefix("refused:"))
        if stored is None or kind is None:
            return None
        where, _, hint = stored.reasoning.partition("\n")
        error = kind(stored.text, where=where, hint=hint)
        error.__dict__["digest"] = key.hex()
        return error

    def _read(self, place: Place) -> Response | None:
        try:
            path = self._index.path(place.file)
            with path.open("rb") as file:
                file.seek(place.offset)
                return decode_response(file.read(place.size))
        except (OSError, ValueError, TypeError, StorageError) as error:  # gone or damaged since it was found
            log.warning("a recorded call cannot be read again (file %s): %s", self._index.name(place.file), error)
            return None

    def append(self, digest: bytes, response: Response, engine: str = "") -> None:
        """Store a response of ``engine``; a digest that is stored already is left as it is."""
        if digest in self._fresh or (digest in self._index and digest not in self._unreadable):
            return
        self._fresh[digest] = response
        self._buffer.append((digest, packed(digest, encode_response(response, engine))))

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
            place = Place(self._number, offset + _HEAD.size + 16, len(record) - _HEAD.size - 16)
            self._index.add(digest, place)
            self._unreadable.discard(digest)
            del self._fresh[digest]
            offset += len(record)


def packed(digest: bytes, response: bytes) -> bytes:
    """A record: see the module."""
    body = digest + response
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def scan(path: Path, start: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """(digest, offset of the response, its size) of every whole record of a segment, up to the first torn one.

    ``start`` is where the reading begins: the end of a record.
    """
    with storage_errors(path), path.open("rb") as file:
        file.seek(start)
        offset, end = start, path.stat().st_size
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


def refusal_key(digest: bytes) -> bytes:
    """Under which the refusal of a call is stored: apart from its answer, which may come in a later run."""
    return hashlib.blake2b(b"refused" + digest, digest_size=16).digest()


def late_key(digest: bytes, address: Address) -> bytes:
    """Stands for the call at one address: another unit may have waited longer for the same answer."""
    return hashlib.blake2b(digest + repr(tuple(address)).encode("utf-8", "backslashreplace"), digest_size=16).digest()


def _scanned(path: Path) -> list[tuple[bytes, int, int]]:
    return list(scan(path))


def kept(response: Response, *, attempts: int | None = None, replica: str | None = None) -> Response:
    """``response`` as it comes back from the log: texts storable, log probabilities finite. What is used live, too.

    ``attempts`` and ``replica``, which the log does not hold, are set on the way.
    """
    logprobs = tuple((storable(t), p if math.isfinite(p) else LEAST_LOGPROB) for t, p in response.logprobs)
    return Response(
        text=storable(response.text),
        usage=response.usage,
        finish_reason=storable(response.finish_reason),
        reasoning=storable(response.reasoning),
        tool_calls=tuple(storable_tree(response.tool_calls)) if response.tool_calls else (),
        logprobs=logprobs,
        vectors=tuple(tuple(map(float, v)) for v in response.vectors) if response.vectors else (),
        attempts=response.attempts if attempts is None else attempts,
        replica=response.replica if replica is None else replica,
    )


def encode_response(response: Response, engine: str = "") -> bytes:
    """A response, already in the form of :func:`kept`, as JSON; ``attempts`` and ``replica`` are left out."""
    u = response.usage
    record: list[Any] = [
        response.text,
        response.finish_reason,
        [u.prompt_tokens, u.cached_tokens, u.output_tokens, u.reasoning_tokens, u.queue_s, u.run_s],
        response.reasoning,
        response.tool_calls,
        response.logprobs,
    ]
    if response.vectors or engine:
        record.append([base64.b64encode(struct.pack(f"<{len(v)}d", *v)).decode() for v in response.vectors])
    if engine:
        record.append(engine)
    return orjson.dumps(record)


def paid_for(data: bytes) -> tuple[str, Usage] | None:
    """(engine, what it was paid for) of an encoded response, "" for an unnamed engine; None for a refusal."""
    fields = orjson.loads(data)
    if fields[1].startswith("refused:"):
        return None
    return (fields[7] if len(fields) > 7 else ""), Usage(*fields[2])


def decode_response(data: bytes) -> Response:
    """Inverse of :func:`encode_response`."""
    text, finish, usage, reasoning, tool_calls, logprobs, *more = orjson.loads(data)
    packed_vectors = map(base64.b64decode, more[0] if more else ())
    return Response(
        text=text,
        usage=Usage(*usage),
        finish_reason=finish,
        reasoning=reasoning,
        tool_calls=tuple(tool_calls),
        logprobs=tuple((t, p) for t, p in logprobs),
        vectors=tuple(struct.unpack(f"<{len(v) // 8}d", v) for v in packed_vectors),
    )
