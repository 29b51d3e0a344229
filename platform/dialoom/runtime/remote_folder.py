"""A run folder on an object store (any fsspec URL): one PUT a file, never a rename, and a local mirror to read from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from dialoom.errors import RunRefused, StorageError
from dialoom.runtime.folder import RunFolder

HEARTBEAT_S = 15.0
LOCK_STALE_S = 60.0


class RemoteFolder(RunFolder):
    """See the module. ``path`` is the mirror: written files are kept there too, others come on :meth:`fetch`.

    Endpoint and credentials are the store's own affair (for S3 the usual AWS environment variables).
    """

    def __init__(self, url: str) -> None:
        import fsspec

        base = Path(os.environ.get("DIALOOM_CACHE") or tempfile.gettempdir()) / "dialoom-mirrors"
        super().__init__(base / hashlib.sha256(url.encode()).hexdigest()[:24])
        self._url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self._url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            hint = "Install the file system's package, for S3 's3fs' (extra 's3')."
            raise StorageError(f"cannot be opened: {error}", where=url, hint=hint) from error

    def __str__(self) -> str:
        return self._url

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteFolder, (self._url,))

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            # Every fsspec back end raises its own kinds; all of them mean that the store did not do it.
            text = f"{type(error).__name__}: {error}"
            raise StorageError(text, where=f"{self._url}/{name}", hint="Check the store, then run again.") from error

    def make(self) -> None:
        super().make()
        with self._errors(""), contextlib.suppress(FileExistsError):
            self._fs.makedirs(self._root, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        with self._errors(name):
            self._fs.pipe_file(self._key(name), data)

    def read(self, name: str) -> bytes | None:
        with self._errors(name):
            try:
                return bytes(self._fs.cat_file(self._key(name)))
            except FileNotFoundError:
                return None

    def fetch(self, name: str) -> Path:
        local = self.path / name
        data = self.read(name)
        if data is not None:
            super().put(name, data)
        return local

    def publish(self, name: str) -> None:
        with self._errors(name):
            self._fs.put_file(str(self.path / name), self._key(name))

    def remove(self, name: str) -> None:
        super().remove(name)
        with self._errors(name), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._key(name))

    def append(self, name: str, data: bytes, number: int) -> int:
        """Each append becomes an object of its own; the mirror holds them in one file."""
        offset = super().append(name, data, number)
        stem, dot, suffix = name.rpartition(".")
        try:
            with self._errors(name):
                self._fs.pipe_file(self._key(f"{stem}-{number:06d}{dot}{suffix}"), data)
        except StorageError:
            with (self.path / name).open("ab") as out:
                out.truncate(offset)
            raise
        return offset

    def names(self, folder: str, suffix: str) -> list[str]:
        return list(self.sizes(folder, suffix))

    def sizes(self, folder: str, suffix: str) -> dict[str, int]:
        with self._errors(folder):
            try:
                self._fs.invalidate_cache()
                found = self._fs.ls(self._key(folder), detail=True)
            except FileNotFoundError:
                return {}
        named = {f"{folder}/{f['name'].rsplit('/', 1)[-1]}": int(f["size"] or 0) for f in found}
        return {name: named[name] for name in sorted(named) if name.endswith(suffix)}

    def next_epoch(self) -> int:
        taken = [int(n.rsplit("/", 1)[-1].split("-")[0].split(".")[0]) for n in self.names("epochs", ".json")]
        number = max(taken, default=0) + 1
        # Two starts at once may share a number: writers' names are unique all the same.
        self.put(f"epochs/{number:05d}-{uuid.uuid4().hex[:6]}.json", orjson.dumps({"at": time.time()}))
        return number

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """A lock object with a heartbeat: another driver's counts while it is younger than a minute."""
        owner = f"{socket.gethostname()} pid {os.getpid()} {uuid.uuid4().hex[:8]}"
        held = self.read_json("lock.json")
        if held and held.get("owner") and time.time() - float(held["at"]) < LOCK_STALE_S:
            raise RunRefused(
                f"another process is running this job ({held['owner']})",
                where=self._url,
                hint=f"Wait for it, or {LOCK_STALE_S:.0f} s after it ended by force; the run can be resumed.",
            )
        stop = threading.Event()

        def beat() -> None:
            while not stop.is_set():
                with contextlib.suppress(StorageError):
                    self.put_json("lock.json", {"owner": owner, "at": time.time()})
                stop.wait(HEARTBEAT_S)

        self.put_json("lock.json", {"owner": owner, "at": time.time()})
        thread = threading.Thread(target=beat, daemon=True, name="run-lock")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=5)
            with contextlib.suppress(StorageError):
                self.put_json("lock.json", {"owner": "", "at": time.time()})
