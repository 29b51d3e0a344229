"""Scratch folders in TMPDIR: each is locked by the process that uses it, so that what a killed one left can be told
from what is in use, and goes at the next start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType


class Scratch:
    """A new folder, ``path``, in TMPDIR; removed at :meth:`close` or when the program ends. Raises OSError.

    Folders of the same ``prefix`` whose process is dead are removed first. The lock ends with its process, whatever
    becomes of that, and is none of its children's.
    """

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            try:
                lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # swept by another start before it was locked
                continue
            if _locked(lock, where_impossible=True) and self.path.exists():
                break
            os.close(lock)
        self.close = weakref.finalize(self, _remove, self.path, lock)
        """Removes the folder; once is enough."""

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def sweep(prefix: str) -> None:
    """Remove this user's scratch folders of ``prefix`` that no living process uses. What cannot be looked at stays."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid() and _locked(lock, where_impossible=False):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(lock: int, *, where_impossible: bool) -> bool:
    """Take the lock, if nobody has it; ``where_impossible`` is the answer of a file system without locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return where_impossible
    return True


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
