"""One file over HTTP: continued after a broken connection or a killed process, and whole or not there.

A download to ``x`` grows in ``x.part``; ``x.source.json`` says which URL and which version of it that is.
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import orjson

import dialoom
from dialoom.errors import FetchError, JobError

CHUNK_BYTES = 2**18
TIMEOUT_S = 30.0
MAX_TRIES = 5
"""Tries in a row that bring no further byte."""
MAX_WAIT_S = 60.0

Observe = Callable[[int, int | None, str], None]
"""Called with bytes here so far, bytes in all where the server says so, and what is wrong while nothing moves."""


class _Broken(Exception):
    """The transfer broke off in a way that trying again may mend."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class _Source:
    """What a ``.part`` file is the beginning of. ``validator`` is the server's name for this version of the file."""

    url: str
    validator: str = ""
    total_bytes: int | None = None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP addresses only, and never from an encrypted connection to an open one."""

    max_redirections = 5

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise FetchError(f"the server redirects to '{newurl}'", where=req.full_url, hint="It is not followed.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    to: Path,
    *,
    max_bytes: int,
    mix_is_noticed: bool = False,
    observe: Observe = lambda done, total, trouble: None,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Get ``url`` as the file ``to``; what an earlier call left unfinished is continued. True where it was continued.

    A file is continued only if the server says that it is still the same version, or, with ``mix_is_noticed``, if the
    caller checks the whole anyway. ``pause`` waits between tries. Raises FetchError; JobError for a URL that is not
    HTTP; OSError where the file cannot be written.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise JobError(f"'{url}' is no HTTP address", hint="Write it as https://host/path.")
    return _Download(url, to, max_bytes, mix_is_noticed, observe, pause).run()


def forget(to: Path) -> None:
    """Remove what :func:`download` has brought, whole or not."""
    for path in (to, _part(to), _note(to)):
        path.unlink(missing_ok=True)


def _part(to: Path) -> Path:
    return to.with_name(to.name + ".part")


def _note(to: Path) -> Path:
    return to.with_name(to.name + ".source.json")


class _Download:
    """One call of :func:`download`. ``_source`` is what the ``.part`` file is known to be the beginning of."""

    def __init__(
        self,
        url: str,
        to: Path,
        max_bytes: int,
        mix_is_noticed: bool,
        observe: Observe,
        pause: Callable[[float], None],
    ) -> None:
        self._url, self._to, self._max_bytes = url, to, max_bytes
        self._mix_is_noticed, self._observe, self._pause = mix_is_noticed, observe, pause
        self._opener = urllib.request.build_opener(_Redirects)
        self._source = self._noted()
        self._continued = False

    def run(self) -> bool:
        if self._source.url != self._url:
            forget(self._to)
            self._source = _Source(self._url)
        if self._to.exists():
            return False
        tries, best = 0, self._have
        while True:
            try:
                self._attempt()
                break
            except _Broken as broken:
                tries = 1 if self._have > best else tries + 1
                best = max(best, self._have)
                if tries >= MAX_TRIES:
                    hint = "Try again later: what is here is kept and continued."
                    raise FetchError(
                        f"{broken}; {tries} tries brought nothing more", where=self._url, hint=hint
                    ) from None
                wait_s = min(MAX_WAIT_S, 2.0 ** (tries - 1) if broken.wait_s is None else broken.wait_s)
                self._observe(self._have, self._source.total_bytes, f"{broken}; trying again in {wait_s:.0f} s")
                self._pause(wait_s)
        _part(self._to).replace(self._to)
        return self._continued

    @property
    def _have(self) -> int:
        part = _part(self._to)
        return part.stat().st_size if part.exists() else 0

    def _noted(self) -> _Source:
        try:
            return _Source(**orjson.loads(_note(self._to).read_bytes()))
        except (FileNotFoundError, TypeError, ValueError):
            return _Source("")

    def _attempt(self) -> None:
        """One request, up to the end of the file. Raises _Broken where it does not get there."""
        have = self._have
        if have and not (self._source.validator or self._mix_is_noticed):
            have = 0
        response = self._ask(have)
        if response is None:
            return
        with response:
            body = response.headers
            if body.get("Content-Encoding", "identity") != "identity":
                raise FetchError(f"the server packs the file ({body['Content-Encoding']})", where=self._url)
            if response.status == 206:
                total = self._check_range(body, have)
                self._continued = True
            else:
                have, total = 0, _number(body.get("Content-Length"))
            self._check_size(total or 0)
            self._remember(body, total)
            self._take(response, have, total)

    def _ask(self, have: int) -> http.client.HTTPResponse | None:
        """The server's answer to a request for what is missing; None where nothing is."""
        headers = {"User-Agent": f"dialoom/{dialoom.__version__}", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if self._source.validator:
                headers["If-Range"] = self._source.validator
        try:
            response: http.client.HTTPResponse = self._opener.open(
                urllib.request.Request(self._url, headers=headers), timeout=TIMEOUT_S
            )
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and have:
                    if _total(error.headers) == have:
                        return None
                    raise self._start_over("the server has less of the file than is here") from None
                raise self._refused(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise FetchError(f"the server cannot prove who it is: {error.reason}", where=self._url) from error
            raise _Broken(f"cannot reach the server: {error.reason}") from None
        except (http.client.HTTPException, OSError) as error:
            raise _Broken(f"cannot reach the server: {error!r}") from None
        return response

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        what = f"the server answers {error.code} {error.reason}"
        if error.code in (408, 425, 429) or error.code >= 500:
            wait = error.headers.get("Retry-After", "")
            return _Broken(what, float(wait) if wait.isdecimal() else None)
        hint = "The file may have moved: name another place with --url." if error.code in (404, 410) else ""
        return FetchError(what, where=error.url or self._url, hint=hint)

    def _check_range(self, headers: Message, have: int) -> int | None:
        """Bytes of the whole file. Starts over where the part that is sent does not fit what is here."""
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
        total = _total(headers)
        known = self._source.total_bytes
        if not found or int(found[1]) != have or (known is not None and total is not None and total != known):
            raise self._start_over("the server sends another part than was asked for")
        return total

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            forget(self._to)
            raise FetchError(f"the file is larger than {self._max_bytes:,} bytes", where=self._url)

    def _start_over(self, what: str) -> _Broken:
        forget(self._to)
        self._source = _Source(self._url)
        return _Broken(what, 0.0)

    def _remember(self, headers: Message, total: int | None) -> None:
        etag = headers.get("ETag", "")
        validator = etag if etag.startswith('"') else headers.get("Last-Modified", "")
        self._source = _Source(self._url, validator, total)
        note: Mapping[str, Any] = {"url": self._url, "validator": validator, "total_bytes": total}
        _note(self._to).write_bytes(orjson.dumps(note))

    def _take(self, response: http.client.HTTPResponse, have: int, total: int | None) -> None:
        """Append the body to the ``.part`` file, of which ``have`` bytes stay."""
        with _part(self._to).open("r+b" if have else "wb") as part:
            part.truncate(have)
            part.seek(have)
            self._observe(have, total, "")
            while True:
                try:
                    data = response.read1(CHUNK_BYTES)
                except (http.client.HTTPException, OSError) as error:
                    raise _Broken(f"the connection broke off after {have:,} bytes: {error!r}") from None
                if not data:
                    break
                have += len(data)
                self._check_size(have)
                part.write(data)
                self._observe(have, total, "")
        if total is not None and have < total:
            raise _Broken(f"the connection ended after {have:,} of {total:,} bytes")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _total(headers: Message) -> int | None:
    """The length of the whole file in a ``Content-Range``."""
    return _number(headers.get("Content-Range", "").rpartition("/")[2])
