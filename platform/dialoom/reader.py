"""What a reader is, and how data is opened: paths, folders and patterns become a stream of dialogues.

A reader is a plug-in of kind ``readers``. It yields a :class:`~dialoom.dialogue.Dialogue` or, for a record that cannot
become one, a :class:`~dialoom.errors.BadInput`, in file order and with flat memory; it raises nothing over data.
Ids may occur twice: whoever reads decides what that means.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from pydantic import BaseModel, ValidationError

from dialoom.dialogue import Dialogue, Frame
from dialoom.errors import BadInput, DataError, DialoomError, JobError
from dialoom.registry import did_you_mean, find
from dialoom.schema import Schema


class ReaderConfig(BaseModel, extra="forbid", frozen=True):
    """Base of every reader's settings. Unknown fields are refused."""


class ReaderPlugin(Protocol):
    """What a reader's module offers as ``PLUGIN``."""

    name: str
    config: type[ReaderConfig]

    def wants(self, file_name: str) -> bool:
        """Whether a file of this name, found in a folder, holds dialogues. Files named one by one are not asked."""

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        """Every record of ``paths``, in order. May raise JobError over its settings, at the first record at the latest.

        ``config`` is an instance of this plug-in's ``config``.
        """


class FileFingerprint(TypedDict):
    """What tells one version of a data file from another."""

    name: str
    bytes: int
    sha256: str


def open_dialogues(
    reader: str, paths: Sequence[str | Path], options: Mapping[str, Any] | None = None
) -> Iterator[Dialogue | BadInput]:
    """All dialogues of ``paths`` through the reader of that name.

    Paths and options are checked at once: JobError. A reader that fails in a way of its own ends the stream with a
    DataError.
    """
    plugin = _plugin(reader)
    config = _config(plugin, options or {})
    return _guarded(reader, plugin.read(_files(plugin, paths), config))


def _plugin(reader: str) -> ReaderPlugin:
    return cast(ReaderPlugin, find("readers", reader))


def _guarded(reader: str, stream: Iterator[Dialogue | BadInput]) -> Iterator[Dialogue | BadInput]:
    try:
        yield from stream
    except DialoomError:
        raise
    except Exception as error:  # the boundary to plug-ins of others: their own exceptions become one of ours
        what = f"the reader '{reader}' failed: {type(error).__name__}: {error}"
        raise DataError(what, hint="This is a fault of the reader, not of the data.") from error


def reader_config(reader: str, options: Mapping[str, Any]) -> ReaderConfig:
    """The settings of a reader. Raises JobError with the field, what was found and what is allowed."""
    return _config(_plugin(reader), options)


def _config(plugin: ReaderPlugin, options: Mapping[str, Any]) -> ReaderConfig:
    try:
        return plugin.config.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        known = list(plugin.config.model_fields)
        if first["type"] == "extra_forbidden":
            what = f"reader '{plugin.name}' has no option '{name}'"
            raise JobError(what, hint=did_you_mean(name, known) or "It has no options.") from error
        what = f"option '{name}' of reader '{plugin.name}': {first['msg']}, found {first['input']!r}"
        raise JobError(what) from error


def expand_paths(reader: str, paths: Sequence[str | Path]) -> list[Path]:
    """The files that ``paths`` name: files as they are, of a folder those the reader wants, of a pattern its matches.

    In the order given, by name within a folder or pattern, each file once. Raises JobError for a path that is not
    there, a folder or pattern without a file, and for no paths at all.
    """
    return _files(_plugin(reader), paths)


def _files(plugin: ReaderPlugin, paths: Sequence[str | Path]) -> list[Path]:
    if not paths:
        raise JobError("no data is named", hint="Name at least one file, folder or pattern.")
    files: dict[Path, Path] = {}
    for path in paths:
        for file in _expand(plugin, Path(path).expanduser()):
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _expand(plugin: ReaderPlugin, path: Path) -> list[Path]:
    if path.is_dir():
        return _folder(plugin, path)
    if path.exists():
        return [path]
    if any(c in str(path) for c in "*?["):
        found = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 (pattern may be absolute)
        files = [p for p in found if p.is_file()]
        folders = [p for p in found if p.is_dir()] if not files else []
        files.extend(file for folder in folders for file in _folder(plugin, folder))
        if not files:
            raise JobError(f"no file matches the pattern '{path}'", hint=f"Seen from {Path.cwd()}.")
        return files
    raise JobError(f"there is no file or folder '{path}'", hint=_nearest(path))


def _folder(plugin: ReaderPlugin, folder: Path) -> list[Path]:
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    files = [p for p in entries if p.is_file() and plugin.wants(p.name)]
    if files:
        return files
    what = f"the folder '{folder}' holds no file that reader '{plugin.name}' reads"
    below = [p.name for p in entries if p.is_dir() and any(plugin.wants(f.name) for f in p.iterdir())]
    if below:
        raise JobError(what, hint=f"Its folders that do: {', '.join(below[:8])}.")
    seen = ", ".join(p.name for p in entries[:5])
    raise JobError(what, hint=f"It holds: {seen}." if seen else "It is empty.")


def _nearest(path: Path) -> str:
    """Which part of ``path`` is missing, and what is there instead."""
    parent = path.parent
    while not parent.exists():
        path, parent = parent, parent.parent
    if not parent.is_dir():
        return f"'{parent}' is not a folder."
    there = sorted(p.name for p in parent.iterdir() if not p.name.startswith("."))
    near = get_close_matches(path.name, there, n=1)
    if near:
        return f"Did you mean '{parent / near[0]}'?"
    return f"'{parent}' holds: {', '.join(there[:8])}." if there else f"'{parent}' is empty."


def data_fingerprint(paths: Iterable[Path]) -> list[FileFingerprint]:
    """Name, size and SHA-256 of each file, in order. Raises JobError where one cannot be read."""
    found: list[FileFingerprint] = []
    for path in paths:
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                size = stream.tell()
        except OSError as error:
            raise JobError(f"cannot read the file: {error.strerror or error}", where=str(path)) from error
        found.append({"name": path.name, "bytes": size, "sha256": digest})
    return found


def check_against(dialogue: Dialogue, schema: Schema) -> list[str]:
    """What in ``dialogue`` the schema does not know: services, and slots of states. Each once, at its first turn.

    Gold intents and requested slots are not checked: published data names some that its own schema lacks (MultiWOZ 2.2:
    ``find_taxi``), which costs those scores but no state.
    """
    problems: dict[str, None] = {}
    for name in dialogue.services:
        if name not in schema.services:
            problems[f"unknown service '{name}'. {did_you_mean(name, list(schema.services))}"] = None
    seen: set[str] = set()
    for i, turn in enumerate(dialogue.turns):
        for frame in turn.frames or ():
            for problem in _frame_problems(frame, schema):
                if problem not in seen:
                    seen.add(problem)
                    problems[f"turn {i}: {problem}"] = None
    return list(problems)


def _frame_problems(frame: Frame, schema: Schema) -> Iterator[str]:
    service = schema.services.get(frame.service)
    if service is None:
        yield f"unknown service '{frame.service}'. {did_you_mean(frame.service, list(schema.services))}"
        return
    for slot in frame.slot_values:
        if slot not in service.slot_by_name:
            yield f"service '{service.name}' has no slot '{slot}'. {did_you_mean(slot, list(service.slot_by_name))}"
