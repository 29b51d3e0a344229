"""Large files cut into raw records, one at a time: flat memory, exact places, and a fault costs one record.

Top-level lists and objects of JSON are cut by bracket counting, not parsed as one document. So a record that is broken
inside does not end the file, a key that occurs twice is delivered twice, lone surrogates survive, and a place is known
for everything. After a break of the brackets themselves reading goes on at the next line that starts as the broken
record did, where the file has a record a line or is indented; else the rest of the file is given up, and said so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dialoom.readers._raw import (
    BOM,
    CHUNK_BYTES,
    MAX_RECORD_BYTES,
    REST_LOST,
    Fault,
    Place,
    Raw,
    Window,
    open_binary,
    wrong_encoding,
)

MAX_INDENT = 4096

_STRING = rb'"(?:[^"\\\n]++|\\.)*+"'
_PLAIN = rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+"
# Innermost brackets are skipped within the pattern: half the work of taking each bracket in Python.
_SKIPPED = rb'(?:[^"{}\[\]]++|' + _STRING + rb"|\{" + _PLAIN + rb"\}|\[" + _PLAIN + rb"\])*+"
_TO_BRACKET = re.compile(_SKIPPED + rb"([{}\[\]])")
_TO_STOP = re.compile(_SKIPPED)
_OPEN_STRING = re.compile(rb'"(?:[^"\\\n]++|\\.)*+\\?\n')
_KEY = re.compile(rb"(" + _STRING + rb")[ \t\r\n]*:[ \t\r\n]*")
_SCALAR = re.compile(_STRING + rb'|[^,\[\]{}"\s]++')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_CLOSER = {ord("{"): ord("}"), ord("["): ord("]")}


class _Broken(Exception):
    """A record's brackets do not close; ``at`` is the position in the window's buffer."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


def json_records(path: Path, *, keyed: bool) -> Iterator[Raw | Fault]:
    """The records of a file that is one JSON list (``keyed`` false) or one JSON object (true), in file order."""
    try:
        stream = open_binary(path)
    except OSError as error:
        yield Fault(Place(path, 1, 0), f"cannot open the file: {error.strerror or error}")
        return
    with stream:
        yield from _Splitter(Window(stream, path), keyed).records()


class _Splitter:
    """Cuts one file. ``_at`` is the position reached in the window's buffer."""

    def __init__(self, window: Window, keyed: bool) -> None:
        self._window = window
        self._keyed = keyed
        self._first = b'"' if keyed else b"{"
        self._at = 0
        self._indent: bytes | None = None
        self._lost = False

    def records(self) -> Iterator[Raw | Fault]:
        fault = self._open()
        if fault:
            yield fault
            return
        close = ord("}" if self._keyed else "]")
        want_comma = False
        while not self._lost:
            byte = self._peek()
            if byte is None:
                yield self._ended("the file ends before its closing bracket: it may be cut off")
                return
            if byte == close:
                self._at += 1
                if self._peek() is not None:
                    yield self._after_break(_Broken(self._at, "there is text after the closing bracket"))
                    want_comma = False
                    continue
                if self._window.failure:
                    yield self._ended("")
                return
            if byte == ord(","):
                if not want_comma:
                    yield Fault(self._window.place(self._at), "a comma too many between two records")
                want_comma, self._at = False, self._at + 1
                continue
            if want_comma:
                yield Fault(self._window.place(self._at), "a comma is missing between two records")
            record = self._record()
            want_comma = isinstance(record, Raw)
            yield record

    def _open(self) -> Fault | None:
        """Move behind the opening bracket."""
        self._window.grow(0)
        place = self._window.place(0)
        head = self._window.buffer[:4]
        wrong = wrong_encoding(head)
        if wrong:
            return Fault(place, wrong, "Save it as UTF-8.", self._window.buffer)
        self._at = len(BOM) if head.startswith(BOM) else 0
        byte = self._peek()
        if byte is None:
            return self._ended("the file is empty")
        if byte != ord("{" if self._keyed else "["):
            wanted = "an object {id: dialogue}" if self._keyed else "a list [dialogue, ...]"
            found = {ord("{"): "an object", ord("["): "a list"}.get(byte, "something else")
            what = f"the file must be {wanted}, but is {found}"
            hint = "Check that the reader fits the data and that the file holds dialogues."
            return Fault(self._window.place(self._at), what, hint, self._window.buffer)
        self._at += 1
        return None

    def _ended(self, what: str) -> Fault:
        """The fault of a file that ends where it should not, or cannot be read on."""
        if self._window.failure:
            what = f"cannot read on: {self._window.failure}"
        return Fault(self._window.place(self._at), what)

    def _grow(self) -> bool:
        """Read on, keeping what is from the present position on, which becomes 0. False at the end of the file."""
        keep, self._at = self._at, 0
        return self._window.grow(keep)

    def _peek(self) -> int | None:
        """Skip white space; the next byte, or None at the end of the file."""
        while True:
            match = _SPACE.match(self._window.buffer, self._at)
            end = match.end() if match else self._at
            if end < len(self._window.buffer):
                self._at = end
                return self._window.buffer[end]
            if end - self._at > CHUNK_BYTES:
                self._at = end
            if not self._grow():
                self._at = len(self._window.buffer)
                return None

    def _record(self) -> Raw | Fault:
        """The record that starts here; moves behind it, or behind the fault."""
        self._note_indent()
        place = self._window.place(self._at)
        key = ""
        try:
            if self._keyed:
                key = self._key()
            length = self._value_length()
        except _Broken as broken:
            return self._after_break(broken, place, key)
        data = self._window.buffer[self._at : self._at + length]
        self._at += length
        return Raw(place, data, key)

    def _note_indent(self) -> None:
        """Remember the white space before the record where it starts a line: the next one will look alike."""
        buffer = self._window.buffer
        before = buffer.rfind(b"\n", max(0, self._at - MAX_INDENT), self._at)
        indent = buffer[before + 1 : self._at]
        if before >= 0 and not indent.strip() and buffer.startswith(self._first, self._at):
            self._indent = indent

    def _key(self) -> str:
        """The key of the record that starts here; moves to its value."""
        while True:
            match = _KEY.match(self._window.buffer, self._at)
            if match and match.end() < len(self._window.buffer):
                break
            if len(self._window.buffer) - self._at > CHUNK_BYTES or not self._grow():
                raise _Broken(self._at, 'a record must start with its id and a colon ("id": {...})')
        self._at = match.end()
        try:
            return str(json.loads(match[1].decode("utf-8", "surrogatepass"), strict=False))
        except ValueError:
            return match[1][1:-1].decode("utf-8", "backslashreplace")

    def _value_length(self) -> int:
        """Bytes of the JSON value that starts here, which is then whole in the buffer."""
        window = self._window
        opener = window.buffer[self._at]
        if opener not in _CLOSER:
            return self._scalar_length()
        stack = [_CLOSER[opener]]
        at = self._at + 1
        while stack:
            match = _TO_BRACKET.match(window.buffer, at)
            if match is None:
                at -= self._read_on(at)
                continue
            at = match.end()
            bracket = window.buffer[at - 1]
            if bracket in _CLOSER:
                stack.append(_CLOSER[bracket])
            elif bracket != stack.pop():
                raise _Broken(at - 1, f"'{chr(bracket)}' where another bracket must be closed first")
        return at - self._at

    def _scalar_length(self) -> int:
        """Bytes of the number, word or string that starts here: no record, but the next one may be."""
        while True:
            match = _SCALAR.match(self._window.buffer, self._at)
            if match and match.end() < len(self._window.buffer):
                return match.end() - self._at
            if match is None and self._window.buffer[self._at] != ord('"'):
                raise _Broken(self._at, "no record starts here")
            self._read_on(self._at)

    def _read_on(self, at: int) -> int:
        """Get more of the file for a value that starts here and reaches past ``at``; how far positions moved down."""
        window = self._window
        stop = _TO_STOP.match(window.buffer, at)
        open_at = stop.end() if stop else at
        if _OPEN_STRING.match(window.buffer, open_at):
            raise _Broken(open_at, "a text that starts here is not closed on its line")
        if len(window.buffer) - self._at > MAX_RECORD_BYTES:
            raise _Broken(at, f"the record does not end within {MAX_RECORD_BYTES} bytes")
        moved = self._at
        if not self._grow():
            what = f"cannot read on: {window.failure}" if window.failure else "the file ends inside this record"
            raise _Broken(len(window.buffer), what)
        return moved

    def _after_break(self, broken: _Broken, start: Place | None = None, key: str = "") -> Fault:
        """Move to the next record, if it can be told, and describe the break of what began at ``start``."""
        window = self._window
        data = window.buffer[self._at : max(broken.at, self._at + 1)]
        at = window.place(broken.at)
        place = start or at
        what = broken.what if place == at else f"{broken.what} (line {at.line}, byte {at.byte})"
        at_end = broken.at == len(window.buffer)
        if self._resume():
            hint = f"Reading goes on at line {window.place(self._at).line}."
            return Fault(place, what, hint, data, key)
        self._lost = True
        return Fault(place, what, "The file may be cut off." if at_end else REST_LOST, data, key)

    def _resume(self) -> bool:
        """Move to the next line that starts as a record does; False where there is none or none can be told."""
        if self._indent is None:
            starts = re.findall(rb"\n([ \t]*)" + re.escape(self._first), self._window.buffer[self._at :])
            if not starts:
                return False
            self._indent = min(starts, key=len)
        start = re.compile(rb"\n" + re.escape(self._indent) + re.escape(self._first))
        while True:
            match = start.search(self._window.buffer, self._at)
            if match:
                self._at = match.end() - 1
                return True
            self._at = max(self._at, len(self._window.buffer) - len(self._indent) - 2)
            if not self._grow():
                return False
