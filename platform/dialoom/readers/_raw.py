"""Bytes of a data file on their way to becoming records: places, raw records, faults, lines."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_RECORD_BYTES = 256 * 2**20
"""A record that does not end within this many bytes is given up: its quotes or brackets are broken."""

CHUNK_BYTES = 2**20
BOM = b"\xef\xbb\xbf"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_ZSTD_STEP = 2**16
REST_LOST = "The rest of the file is not read."


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file: ``line`` from 1, ``byte`` from 0 (of the unpacked text where the file is compressed)."""

    path: Path
    line: int
    byte: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} (byte {self.byte})"


@dataclass(frozen=True, slots=True)
class Raw:
    """The bytes of one record, not yet parsed. ``key`` is its key where the file is an object of records."""

    place: Place
    data: bytes
    key: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A stretch of a file that is no record. ``data`` is as much of it as is at hand."""

    place: Place
    what: str
    hint: str = ""
    data: bytes = b""
    key: str = ""


def unpacked_name(file_name: str) -> str:
    """``file_name`` without the ending that says it is packed."""
    return file_name.removesuffix(".gz").removesuffix(".zst")


def open_binary(path: Path) -> io.BufferedIOBase:
    """``path`` opened for reading bytes, unpacked where it is gzip or Zstandard (told by its first bytes)."""
    stream = path.open("rb")
    head = stream.read(4)
    if head[:2] == b"\x1f\x8b":
        stream.close()
        return gzip.GzipFile(path)
    if head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F):
        stream.close()
        return io.BufferedReader(_Zstd(path), CHUNK_BYTES)
    stream.seek(0)
    return stream


class _Zstd(io.RawIOBase):
    """A Zstandard file, unpacked by Arrow: no further package is needed.

    Arrow drops what it has unpacked of a read that meets a break. So after one the file is read again to the last byte
    delivered, and from there byte by byte, up to the break itself.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._step = _ZSTD_STEP
        self._delivered = 0
        self._stream = self._open()

    def _open(self) -> Any:
        import pyarrow as pa

        return pa.input_stream(str(self._path), compression="zstd", buffer_size=CHUNK_BYTES)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        size = min(self._step, len(buffer))
        try:
            data = self._stream.read(size)
        except OSError:
            if self._step == 1:
                raise
            self._retry()
            data = self._stream.read(1)
        buffer[: len(data)] = data
        self._delivered += len(data)
        return len(data)

    def _retry(self) -> None:
        self._stream = self._open()
        left = self._delivered
        while left:
            left -= len(self._stream.read(min(_ZSTD_STEP, left)))
        self._step = 1


def line_records(path: Path) -> Iterator[Raw | Fault]:
    """The lines of ``path`` that are not blank, without their line ends; a byte order mark is dropped."""
    try:
        stream = open_binary(path)
    except OSError as error:
        yield Fault(Place(path, 1, 0), f"cannot open the file: {error.strerror or error}")
        return
    line, byte, found = 0, 0, False
    with stream:
        while True:
            place = Place(path, line + 1, byte)
            try:
                data = stream.readline(MAX_RECORD_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                yield Fault(place, f"cannot read on: {error}", REST_LOST)
                return
            if not data:
                break
            line, byte = line + 1, byte + len(data)
            if line == 1:
                wrong = wrong_encoding(data)
                if wrong:
                    yield Fault(place, wrong, "Save it as UTF-8.", data[:CHUNK_BYTES])
                    return
                data = data.removeprefix(BOM)
            if len(data) > MAX_RECORD_BYTES:
                yield Fault(place, f"the line is longer than {MAX_RECORD_BYTES} bytes", REST_LOST, data[:CHUNK_BYTES])
                return
            text = data.strip(b" \t\r\n")
            if text:
                found = True
                yield Raw(place, text)
    if not found:
        yield Fault(Place(path, 1, 0), "the file is empty")


def wrong_encoding(head: bytes) -> str:
    """What is wrong with the encoding of a file that starts with ``head``; empty where nothing shows."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:4] == b"\x00\x00\xfe\xff":
        return "the file is in UTF-16 or UTF-32, not UTF-8"
    if head[:2] in (b"{\x00", b"[\x00", b"\x00{", b"\x00[") or head[:4] in (b"\x00\x00\x00{", b"\x00\x00\x00["):
        return "the file is in UTF-16 or UTF-32, not UTF-8"
    return ""


class Window:
    """A sliding view of a byte stream: ``buffer`` holds what is still needed."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self.buffer = b""
        self.failure = ""
        self._stream = stream
        self._path = path
        self._base = 0
        self._line = 1
        self._counted = 0

    def grow(self, keep: int) -> bool:
        """Drop what is before ``keep`` and read on; positions move down by ``keep``. False at the end of the file."""
        chunk = self._read(max(CHUNK_BYTES, len(self.buffer) - keep))
        self._count(keep)
        self.buffer = self.buffer[keep:] + chunk
        self._base += keep
        self._counted = 0
        return bool(chunk)

    def _read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer at the end or where the stream breaks; a whole ``read`` would drop those."""
        parts: list[bytes] = []
        try:
            while size and not self.failure and (part := self._stream.read1(size)):
                parts.append(part)
                size -= len(part)
        except (OSError, EOFError, zlib.error) as error:
            self.failure = str(error)
        return b"".join(parts)

    def place(self, position: int) -> Place:
        self._count(position)
        return Place(self._path, self._line, self._base + position)

    def _count(self, position: int) -> None:
        if position >= self._counted:
            self._line += self.buffer.count(b"\n", self._counted, position)
        else:
            self._line -= self.buffer.count(b"\n", position, self._counted)
        self._counted = position
