"""Bytes of a data file on their way to becoming records: places, raw records, faults, lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

MAX_RECORD_BYTES = 256 * 2**20
"""A record that does not end within this many bytes is given up: its quotes or brackets are broken."""

CHUNK_BYTES = 2**20
BOM = b"\xef\xbb\xbf"
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


def open_binary(path: Path) -> BinaryIO:
    """``path`` opened for reading bytes, unpacked where it is gzip (told by its first bytes, not its name)."""
    stream = path.open("rb")
    if stream.read(2) == b"\x1f\x8b":
        stream.close()
        return cast(BinaryIO, gzip.open(path, "rb"))
    stream.seek(0)
    return stream


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

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.buffer = b""
        self.failure = ""
        self._stream = stream
        self._path = path
        self._base = 0
        self._line = 1
        self._counted = 0

    def grow(self, keep: int) -> bool:
        """Drop what is before ``keep`` and read on; positions move down by ``keep``. False at the end of the file."""
        size = max(CHUNK_BYTES, len(self.buffer) - keep)
        try:
            chunk = self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            self.failure = str(error)
            chunk = b""
        self._count(keep)
        self.buffer = self.buffer[keep:] + chunk
        self._base += keep
        self._counted = 0
        return bool(chunk)

    def place(self, position: int) -> Place:
        self._count(position)
        return Place(self._path, self._line, self._base + position)

    def _count(self, position: int) -> None:
        if position >= self._counted:
            self._line += self.buffer.count(b"\n", self._counted, position)
        else:
            self._line -= self.buffer.count(b"\n", position, self._counted)
        self._counted = position
