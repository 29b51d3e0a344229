"""A real threaded HTTP server for downloads: ranges, versions, redirects, and all ways for a transfer to go wrong."""

from __future__ import annotations

import http.server
import re
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """How one request is answered.

    ``cut`` ends the connection after so many bytes of the body, by a reset where ``reset`` is set; ``ranges`` says
    whether a range is served; ``shift`` moves the start of what a range gets; ``length`` whether the length is said.
    """

    body: bytes = b""
    status: int = 200
    etag: str = '"v1"'
    modified: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ranges: bool = True
    length: bool = True
    cut: int | None = None
    reset: bool = False
    shift: int = 0

    def but(self, **changes: Any) -> Answer:
        """This answer with other fields."""
        return replace(self, **changes)


def redirect(to: str, status: int = 302) -> Answer:
    return Answer(status=status, headers={"Location": to})


class FileServer:
    """A context manager. ``url`` is the base; ``serve`` says what a path gives; ``seen`` are (path, headers) that came.

    Of several answers for a path each request takes the next; the last one repeats. Other paths are 404.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self._answers: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()

    def serve(self, path: str, *answers: Answer | bytes) -> None:
        self._answers["/" + path] = [Answer(a) if isinstance(a, bytes) else a for a in answers]

    def ranges(self, path: str = "") -> list[str | None]:
        """The ranges asked for, by request."""
        return [headers.get("range") for seen, headers in self.seen if seen.endswith(path)]

    def __enter__(self) -> Self:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, path: str) -> Answer:
        with self._lock:
            answers = self._answers.get(path)
            if not answers:
                return Answer(b"not here", status=404)
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def _answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.seen.append((handler.path, headers))
        answer = self._next(handler.path)
        versions = [answer.etag, formatdate(answer.modified, usegmt=True) if answer.modified else ""]
        asked = re.fullmatch(r"bytes=(\d+)-", headers.get("range", "")) if answer.ranges else None
        if asked and headers.get("if-range", versions[0]) not in versions:
            asked = None
        body, status, extra = answer.body, answer.status, dict(answer.headers)
        if asked and status == 200:
            start, whole = int(asked[1]) + answer.shift, len(body)
            if start >= whole:
                status, body, extra["Content-Range"] = 416, b"", f"bytes */{whole}"
            else:
                status, body = 206, body[start:]
                extra.setdefault("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        handler.send_response(status)
        for name, value in zip(("ETag", "Last-Modified"), versions, strict=True):
            if value:
                handler.send_header(name, value)
        if answer.length:
            handler.send_header("Content-Length", str(len(body)))
        for name, value in extra.items():
            handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body if answer.cut is None else body[: answer.cut])
        handler.wfile.flush()
        handler.close_connection = True
        if answer.reset:
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
