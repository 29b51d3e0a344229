"""Unpacking archives that nobody has looked at: names, kinds and sizes are checked before the first byte is written.

Refused are names that lead out of the folder, links and devices, what is encrypted, names that fall together, and more
than was announced or allowed. An archive is unpacked as a whole or not at all: the caller removes the folder.
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from dialoom.errors import FetchError

MAX_MEMBERS = 100_000
CHUNK_BYTES = 2**20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    IndexError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
)
"""What the standard library raises over a damaged archive, besides an OSError."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of an archive. ``wrong`` says what forbids it; ``open`` gives its bytes."""

    name: str
    size_bytes: int
    is_folder: bool
    wrong: str
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, into: Path, *, keep: Sequence[str], strip: int, max_bytes: int) -> list[PurePosixPath]:
    """Write the files of a zip or tar archive whose path fits one of ``keep`` below ``into``, without their first
    ``strip`` folders; returns their paths there.

    A pattern matches folder by folder (``*/train/*.json``). ``max_bytes`` bounds all members together, unpacked.
    Raises FetchError for an archive that is damaged or refused.
    """
    with _damage(archive), contextlib.closing(_opened(archive)) as opened:
        members = _checked(_members(opened), archive, max_bytes)
        chosen = {path: m for path, m in members if _kept(path, keep) and len(path.parts) > strip}
        targets = {PurePosixPath(*path.parts[strip:]): member for path, member in chosen.items()}
        if len(targets) < len(chosen):
            raise FetchError("two files of the archive get one name", where=str(archive))
        for target, member in targets.items():
            _write(member, into / target, archive)
    return list(targets)


@contextlib.contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """Damage as a FetchError."""
    try:
        yield
    except _DAMAGE as error:
        raise FetchError(f"the archive is damaged: {error}", where=str(archive)) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # neither damage nor a place before the start of the file
            raise
        raise FetchError(f"the archive is damaged: {error}", where=str(archive)) from error


def _opened(archive: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if zipfile.is_zipfile(archive):
        return zipfile.ZipFile(archive)
    try:
        return tarfile.open(archive, "r:*")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        hint = "The server may have sent an error page in its place."
        raise FetchError("the file is no zip or tar archive", where=str(archive), hint=hint) from error


def _members(opened: zipfile.ZipFile | tarfile.TarFile) -> Iterator[_Member]:
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            # ``filename`` is cut at a NUL and has its separators replaced; the original is what is judged.
            yield _Member(
                info.orig_filename,
                info.file_size,
                info.is_dir(),
                _wrong_in_zip(info),
                partial(opened.open, info),
            )
        return
    for entry in opened:
        wrong = "" if (entry.isreg() and not entry.issparse()) or entry.isdir() else "a link or special file"
        yield _Member(entry.name, entry.size, entry.isdir(), wrong, partial(opened.extractfile, entry))


def _wrong_in_zip(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & 1:
        return "encrypted"
    kind = stat.S_IFMT(info.external_attr >> 16)
    return "" if kind in (0, stat.S_IFREG, stat.S_IFDIR) else "a link or special file"


def _checked(members: Iterable[_Member], archive: Path, max_bytes: int) -> list[tuple[PurePosixPath, _Member]]:
    """The files among ``members`` by their path. Stops at the first that is refused, however many follow."""
    found: list[tuple[PurePosixPath, _Member]] = []
    seen: set[str] = set()
    size_bytes = count = 0
    for member in members:
        count += 1
        size_bytes += member.size_bytes
        if count > MAX_MEMBERS:
            raise FetchError(f"the archive has more than {MAX_MEMBERS:,} members", where=str(archive))
        if size_bytes > max_bytes:
            raise FetchError(f"the archive unpacks to more than {max_bytes:,} bytes", where=str(archive))
        wrong = member.wrong or _wrong_name(member.name)
        if wrong:
            raise FetchError(f"the archive holds '{member.name}': {wrong}", where=str(archive), hint="It is refused.")
        if member.is_folder:
            continue
        path = PurePosixPath(member.name)
        folded = str(path).casefold()
        if folded in seen:
            raise FetchError(f"the archive holds '{member.name}' twice", where=str(archive), hint="It is refused.")
        seen.add(folded)
        found.append((path, member))
    for path, member in found:
        if any(str(parent).casefold() in seen for parent in path.parents):
            raise FetchError(f"'{member.name}' lies below a file", where=str(archive), hint="It is refused.")
    return found


def _wrong_name(name: str) -> str:
    """What is wrong with a member's name; empty where it stays inside the folder on any system."""
    if not name.isprintable():
        return "unprintable characters in a name"
    if not name.strip("/."):
        return "" if name.rstrip("/") == "." else "no name of a file"
    if name.startswith("/") or name[1:2] == ":":
        return "an absolute name"
    if "\\" in name:
        return "a backslash in a name"
    return "a name that leads out of the folder" if ".." in name.split("/") else ""


def _kept(path: PurePosixPath, keep: Sequence[str]) -> bool:
    return any(_fits(path.parts, pattern.split("/")) for pattern in keep)


def _fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _write(member: _Member, target: Path, archive: Path) -> None:
    """Write one file, no byte more than was announced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    left = member.size_bytes
    stream = member.open()
    if stream is None:
        raise FetchError(f"'{member.name}' has no content", where=str(archive))
    with stream, target.open("xb") as out:
        while data := stream.read(CHUNK_BYTES):
            left -= len(data)
            if left < 0:
                break
            out.write(data)
    if left:
        raise FetchError(f"'{member.name}' is not as long as it says", where=str(archive), hint="It is refused.")
