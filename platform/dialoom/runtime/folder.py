"""The run folder: where everything of one run lies, and the one way files get there.

```
RUN/job.yaml run.json prompts/ epochs/ parts/ calls/ engine_time/ traces/ scores.json log.jsonl
```
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from dialoom.errors import RunRefused, StorageError
from dialoom.faults import fault_point

PIECE = 1 << 12
"""Bytes of one write to a file that grows."""


class RunFolder:
    """A run's folder on a file system; made where it is missing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def traces(self) -> Path:
        """Folder of the compacted Parquet files."""
        return self.path / "traces"

    def make(self) -> None:
        """Create the folder. Raises StorageError with the reason."""
        with storage_errors(self.path):
            for name in ("parts", "calls", "epochs", "traces"):
                (self.path / name).mkdir(parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Write ``name`` whole or not at all: a temporary name, flushed to disk, then renamed. Raises StorageError."""
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                fault_point("rename", name.partition("/")[0])
                temporary.replace(target)
            except OSError:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise

    def read(self, name: str) -> bytes | None:
        """The content of ``name``, or None where it does not exist. Raises StorageError."""
        with storage_errors(self.path / name):
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The JSON object in ``name``, or None where it does not exist. Raises StorageError."""
        data = self.read(name)
        if data is None:
            return None
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise StorageError(f"is damaged: {error}", where=str(self.path / name)) from error
        if not isinstance(record, dict):
            raise StorageError("is damaged: it holds no JSON object", where=str(self.path / name))
        return record

    def put_json(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a JSON object, indented, whole or not at all. Raises StorageError."""
        self.put(name, orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")

    def fetch(self, name: str) -> Path:
        """A local path that holds ``name`` as it is now; the file itself where the folder is local."""
        return self.path / name

    def publish(self, name: str) -> None:
        """Make ``name``, written below :attr:`path`, part of the run; nothing to do where the folder is local."""

    def append(self, name: str, data: bytes, number: int) -> int:
        """Add ``data`` to the file ``name`` of one writer, safe on disk. Returns where in :meth:`fetch` it begins.

        ``number`` counts the appends. A failed one leaves the file as it was: StorageError.
        """
        target = self.path / name
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)  # on another machine the mirror begins empty
            with target.open("ab", buffering=0) as out:  # a buffer would be written out late again
                size = out.tell()
                left = memoryview(data)
                try:
                    while left:
                        left = left[out.write(left[:PIECE]) :]
                        fault_point("append")
                    os.fsync(out.fileno())
                except OSError:
                    out.truncate(size)  # a half-written record would hide all that comes after it
                    raise
        return size

    def remove(self, name: str) -> None:
        """Delete ``name`` if it is there. Raises StorageError."""
        with storage_errors(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove unfinished files that a dead process left. For the one who holds the folder: where their writer lives
        after all, it meets an error and writes again. Raises StorageError.
        """
        with storage_errors(self.path):
            for folder in (self.path, *(p for p in self.path.iterdir() if p.is_dir())):
                for left in folder.glob(".*.tmp"):
                    left.unlink(missing_ok=True)

    def names(self, folder: str, suffix: str) -> list[str]:
        """Names (with the folder) of the finished files of ``folder``, sorted; unfinished ones are left out."""
        with storage_errors(self.path / folder):
            try:
                found = [p.name for p in (self.path / folder).iterdir()]
            except FileNotFoundError:
                return []
        return sorted(f"{folder}/{n}" for n in found if n.endswith(suffix) and not n.startswith("."))

    def sizes(self, folder: str, suffix: str) -> dict[str, int]:
        """Sizes in bytes of the files that :meth:`names` gives. Raises StorageError."""
        with storage_errors(self.path / folder):
            return {name: (self.path / name).stat().st_size for name in self.names(folder, suffix)}

    def next_epoch(self) -> int:
        """A number that no other start of this run has, from 1: names this start's parts and segments."""
        with storage_errors(self.path / "epochs"):
            number = len(self.names("epochs", ".json")) + 1
            while True:
                name = self.path / "epochs" / f"{number:05d}.json"
                try:
                    with name.open("xb") as out:
                        fault_point("epoch")
                        out.write(orjson.dumps({"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}))
                    return number
                except FileExistsError:
                    number += 1

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one driver; the lock ends with the process. Raises RunRefused where another holds it."""
        with storage_errors(self.path):
            lock = (self.path / ".lock").open("a+b", buffering=0)
        with lock:  # errors of what runs under the lock are no errors of this folder
            with storage_errors(self.path):
                self._take(lock)
            yield

    def _take(self, lock: FileIO) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read(80).decode(errors="replace").strip()
            raise RunRefused(
                f"another process is running this job ({owner})",
                where=str(self.path),
                hint="Wait for it, or stop it; the run can be resumed.",
            ) from None
        with contextlib.suppress(OSError):  # who holds it is only a courtesy: a full disk may have no room for it
            lock.truncate(0)
            lock.write(f"{socket.gethostname()} pid {os.getpid()}".encode())


def open_folder(place: str | Path) -> RunFolder:
    """The run folder at a path or an fsspec URL such as ``s3://bucket/runs/name``. Raises StorageError."""
    if "://" in str(place):
        from dialoom.runtime.remote_folder import RemoteFolder

        return RemoteFolder(str(place))
    return RunFolder(Path(place).absolute())


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the file system's errors into StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        hints = {
            28: "The disk is full: free some space and run the same command again; nothing committed is lost.",
            122: "The disk quota is used up: free some space and run the same command again.",
            13: "Give this user the right to write there, or set run.root.",
            30: "The file system is read-only: set run.root to another place.",
        }
        hint = hints.get(error.errno or 0, "Check the path and run the same command again.")
        raise StorageError(error.strerror or str(error), where=str(error.filename or path), hint=hint) from error
