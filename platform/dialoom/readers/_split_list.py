"""Split lists: which dialogues of the files are read. One option, ``ids``, for every reader whose records have ids."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import orjson

from dialoom.errors import BadInput, JobError
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import BOM, open_binary
from dialoom.text import storable


class SplitConfig(ReaderConfig):
    """Settings of a reader that takes a split list."""

    ids: Path | None = None
    """A split list: only these dialogues are read. One id a line, or a JSON list; ``.json`` at an id's end is optional.
    An id of the list that no file holds is a bad input."""


class Split:
    """The dialogues that are wanted: those of a list, or all. Remembers which ids of the list came up.

    The list is read at once. Raises JobError where it cannot be.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._wanted = None if path is None else _ids(path)
        self._missing = dict(self._wanted or {})

    def takes(self, dialogue_id: str) -> bool:
        """Whether this dialogue is wanted."""
        if self._wanted is None:
            return True
        short = dialogue_id.removesuffix(".json")
        self._missing.pop(short, None)
        return short in self._wanted

    def missing(self) -> Iterator[BadInput]:
        """What the list names and no file held, after the last file."""
        for dialogue_id in self._missing:
            what = "the split list names this dialogue, but no file holds it"
            yield BadInput(storable(dialogue_id), str(self._path), what, "Check that list and data belong together.")


EVERYTHING = Split()
"""No list: every dialogue is wanted."""


def _ids(path: Path) -> dict[str, None]:
    """The ids of a list in its order, without ``.json``. The form is told by its first character, not by the name:
    MultiWOZ 2.4 publishes lines under ``.json``."""
    try:
        with open_binary(path) as stream:
            data = stream.read().removeprefix(BOM)
        if data.lstrip()[:1] in (b"[", b"{"):
            ids = orjson.loads(data)
            if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
                raise JobError("the split list is not a list of texts", where=str(path))
        else:
            ids = data.decode().split("\n")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobError(f"cannot read the split list: {reason}", where=str(path)) from error
    except ValueError as error:
        hint = "One id a line, or a JSON list of texts, in UTF-8."
        raise JobError(f"the split list cannot be read: {error}", where=str(path), hint=hint) from error
    found = dict.fromkeys(short for i in ids if (short := i.strip().removesuffix(".json")))
    if not found:
        raise JobError("the split list is empty", where=str(path))
    return found
