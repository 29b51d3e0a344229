"""Public data sets from their publishers: downloaded, checked, unpacked, and there as a whole or not at all.

The catalogue is ``data_sets.yaml``. Where it knows a checksum, the file must have it. Where it does not, the first
fetch is trusted: the checksums of all files are recorded in ``FETCHED.yaml`` beside them and must come out the same
when the data is fetched again. Everything is done in a hidden folder next to the target, which stays after a failure so
that the next call continues, and takes the target's name at the very end.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field, StringConstraints

import dialoom
from dialoom.archive import unpack
from dialoom.download import download, forget
from dialoom.errors import FetchError, JobError, StorageError
from dialoom.registry import did_you_mean

RECORD = "FETCHED.yaml"
"""What was fetched from where, and the checksum of every file; lies beside the files."""

SHOWN = 5
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Archive(BaseModel, extra="forbid", frozen=True):
    """An archive of which the files that fit ``keep`` are taken, without their first ``strip`` folders."""

    path: str
    sha256: Sha256 | None
    keep: tuple[str, ...]
    strip: int = Field(ge=0)


class DataSet(BaseModel, extra="forbid", frozen=True):
    """One entry of the catalogue; ``data_sets.yaml`` explains the fields."""

    title: str
    licence: str
    home: str
    base: str
    archive: Archive | None = None
    files: Mapping[str, Sha256 | None] = {}
    holds: Mapping[str, int] = {}
    limit_mb: int = Field(gt=0)
    use: str = ""

    @property
    def checked(self) -> Literal["all", "some", "none"]:
        """How much of what is downloaded has a checksum that is known beforehand."""
        whole = self.archive.sha256 is not None if self.archive else all(self.files.values())
        return "all" if whole else "some" if any(self.files.values()) else "none"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a fetch is: ``file``, the ``n``-th of ``files``, in a ``phase``: downloading, checking or unpacking.

    ``trouble`` says why nothing moves.
    """

    phase: str
    file: str
    n: int
    files: int
    done_bytes: int = 0
    total_bytes: int | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A data set that is there. ``files`` counts them; ``new`` is False where it was there before and is unchanged."""

    folder: Path
    data_set: DataSet
    files: int
    size_bytes: int
    new: bool


Observe = Callable[[Progress], None]


@cache
def catalogue() -> Mapping[str, DataSet]:
    """The data sets that can be fetched, by name."""
    records = yaml.safe_load(Path(__file__).with_name("data_sets.yaml").read_bytes())
    return {name: DataSet.model_validate(record) for name, record in records.items()}


def fetch(
    name: str,
    to: Path | None = None,
    *,
    url: str | None = None,
    again: bool = False,
    observe: Observe = lambda progress: None,
    pause: Callable[[float], None] = time.sleep,
    data_sets: Mapping[str, DataSet] | None = None,
) -> Fetched:
    """The data set ``name`` in the folder ``to`` (default ``data/<name>``).

    A folder that holds it already is checked against its record, and left as it is. ``again`` downloads anew and
    replaces it, if what comes has the recorded checksums. ``url`` takes the place of the catalogue's base address, for
    a mirror. ``pause`` waits between tries. Raises JobError for an unknown name, FetchError, StorageError.
    """
    known = catalogue() if data_sets is None else data_sets
    if name not in known:
        raise JobError(f"no data set is named '{name}'", hint=did_you_mean(name, list(known)))
    folder = (Path("data", name) if to is None else to).expanduser().absolute()
    job = _Fetch(name, known[name], folder, url or known[name].base, observe, pause)
    try:
        record = _record(folder, name)
        if record is not None and not again:
            return job.verified(record)
        with _workplace(folder) as work:
            return job.run(work, _record(folder, name))
    except OSError as error:
        what = f"cannot write or read: {error.strerror or error}"
        raise StorageError(what, where=str(error.filename or folder)) from error


def _record(folder: Path, name: str) -> dict[str, Any] | None:
    """What ``folder`` holds by its record; None where there is nothing. Raises FetchError where it is not ours."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    hint = "Name another folder with --to."
    try:
        record = yaml.safe_load((folder / RECORD).read_bytes())
        found = record["name"]
        for entry in record["files"].values():
            int(entry["bytes"]), str(entry["sha256"])
    except (FileNotFoundError, NotADirectoryError):
        raise FetchError("the folder is there, and was not fetched", where=str(folder), hint=hint) from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FetchError(f"the record cannot be read: {error}", where=str(folder / RECORD), hint=hint) from error
    if found != name:
        raise FetchError(f"the folder holds '{found}', not '{name}'", where=str(folder), hint=hint)
    return dict(record)


@dataclass(frozen=True)
class _Fetch:
    """One call of :func:`fetch`. ``base`` is the address that paths are taken from."""

    name: str
    data_set: DataSet
    folder: Path
    base: str
    observe: Observe
    pause: Callable[[float], None]

    @property
    def max_bytes(self) -> int:
        return self.data_set.limit_mb * 10**6

    def verified(self, record: Mapping[str, Any]) -> Fetched:
        """The data that is there, every file looked at. Raises FetchError naming those that are not as fetched."""
        files = record["files"]
        odd = []
        for n, (path, entry) in enumerate(files.items(), 1):
            self.observe(Progress("checking", path, n, len(files)))
            file = self.folder / path
            if not file.is_file():
                odd.append(f"{path} is missing")
            elif _sha256(file) != entry["sha256"]:
                odd.append(f"{path} has changed")
        if odd:
            hint = "--again fetches the data anew and replaces the folder."
            raise FetchError(f"not as it was fetched: {_some(odd)}", where=str(self.folder), hint=hint)
        return self._fetched(files, new=False)

    def run(self, work: Path, record: Mapping[str, Any] | None) -> Fetched:
        """Download, check and put in place. ``record`` is that of the folder which is replaced."""
        if record is not None:
            self._nothing_else(record)
        tree = work / "tree"
        tree.mkdir()
        if self.data_set.archive:
            self._from_archive(self.data_set.archive, work, tree)
        else:
            self._from_files(work, tree)
        files = self._described(tree)
        self._check(files, record)
        self._write_record(tree, files)
        for path in self.data_set.files if self.data_set.archive is None else [self.data_set.archive.path]:
            forget(_place(work, path))
        if self.folder.exists():
            self.folder.rename(work / "replaced")
        tree.rename(self.folder)
        return self._fetched(files, new=True)

    def _nothing_else(self, record: Mapping[str, Any]) -> None:
        """Raises FetchError where the folder to be replaced holds files of somebody else."""
        found = (p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if not p.is_dir())
        others = [name for name in found if name != RECORD and name not in record["files"]]
        if others:
            what = f"the folder holds files that were not fetched: {_some(others)}"
            raise FetchError(what, where=str(self.folder), hint="Move them elsewhere: the folder is replaced.")

    def _from_archive(self, archive: Archive, work: Path, tree: Path) -> None:
        path = self._get(archive.path, archive.sha256, work, 1, 1)
        self.observe(Progress("unpacking", archive.path, 1, 1))
        try:
            unpack(path, tree, keep=archive.keep, strip=archive.strip, max_bytes=self.max_bytes)
        except FetchError:
            forget(path)
            raise

    def _from_files(self, work: Path, tree: Path) -> None:
        wanted = self.data_set.files
        got = {path: self._get(path, sha, work, n, len(wanted)) for n, (path, sha) in enumerate(wanted.items(), 1)}
        for path, file in got.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            file.rename(tree / path)

    def _get(self, path: str, sha256: str | None, work: Path, n: int, files: int) -> Path:
        """The file at ``path`` below the base, downloaded, with this checksum. Raises FetchError."""
        url = f"{self.base.rstrip('/')}/{path}"
        to = _place(work, path)

        def observe(done: int, total: int | None, trouble: str) -> None:
            self.observe(Progress("downloading", path, n, files, done, total, trouble))

        get = partial(download, url, to, max_bytes=self.max_bytes, mix_is_noticed=sha256 is not None)
        was_there = to.exists()
        continued = get(observe=observe, pause=self.pause)
        if sha256 is not None and _sha256(to) != sha256 and (continued or was_there):
            forget(to)  # perhaps of two versions: once more from the start
            get(observe=observe, pause=self.pause)
        if sha256 is not None and (found := _sha256(to)) != sha256:
            size = to.stat().st_size
            forget(to)
            hint = "The mirror may hold another version, or something on the way replaced the file."
            raise FetchError(f"wrong checksum: SHA-256 {found} ({size:,} bytes), not {sha256}", where=url, hint=hint)
        return to

    def _described(self, tree: Path) -> dict[str, dict[str, Any]]:
        """Size and checksum of every file below ``tree`` by its path."""
        paths = sorted(p for p in tree.rglob("*") if p.is_file())
        found = {}
        for n, path in enumerate(paths, 1):
            name = path.relative_to(tree).as_posix()
            self.observe(Progress("checking", name, n, len(paths)))
            found[name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        return found

    def _check(self, files: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any] | None) -> None:
        """Raises FetchError where files are missing, or differ from the catalogue or from those of the first fetch."""
        data_set = self.data_set
        odd = [f"{path} is missing" for path in data_set.files if path not in files]
        for pattern, count in data_set.holds.items():
            there = sum(Path(path).match(pattern) and path.count("/") == pattern.count("/") for path in files)
            if there != count:
                odd.append(f"{pattern}: {there} files, not {count}")
        if odd:
            raise FetchError(f"what came is not whole: {_some(odd)}", where=self.base, hint="Is it the right address?")
        odd = [path for path, sha in data_set.files.items() if sha is not None and files[path]["sha256"] != sha]
        if odd:
            raise FetchError(f"wrong checksum: {_some(odd)}", where=self.base, hint="It may be another version.")
        if record is None or record.get("source") != data_set.base:
            return
        old = record["files"]
        odd = [path for path in old if files.get(path, {}).get("sha256") != old[path]["sha256"]]
        if odd:
            hint = "If the publisher changed them on purpose, remove the folder and fetch again."
            raise FetchError(f"not what the first fetch brought: {_some(odd)}", where=self.base, hint=hint)

    def _write_record(self, tree: Path, files: Mapping[str, Any]) -> None:
        data_set = self.data_set
        record = {
            "name": self.name,
            "title": data_set.title,
            "licence": data_set.licence,
            "home": data_set.home,
            "source": data_set.base,
            "fetched_from": self.base,
            "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "dialoom": dialoom.__version__,
            "files": files,
        }
        (tree / RECORD).write_text(yaml.safe_dump(record, sort_keys=False, allow_unicode=True), encoding="utf-8")

    def _fetched(self, files: Mapping[str, Mapping[str, Any]], *, new: bool) -> Fetched:
        return Fetched(self.folder, self.data_set, len(files), sum(f["bytes"] for f in files.values()), new)


@contextlib.contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """The hidden folder beside ``folder``, for one fetch at a time. Afterwards it is gone, or holds the downloads.

    A folder whose replacement was cut short is put back.
    """
    work = folder.with_name(f".{folder.name}.fetch")
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FetchError("another fetch into this folder is under way", where=str(folder)) from None
        _clear(work, folder)
        try:
            yield work
        finally:
            _clear(work, folder)
            if [p.name for p in work.iterdir()] == ["lock"]:
                shutil.rmtree(work)


def _place(work: Path, path: str) -> Path:
    """Where the download of ``path`` lies."""
    return work / path.replace("/", "_")


def _clear(work: Path, folder: Path) -> None:
    replaced = work / "replaced"
    if replaced.exists() and not folder.exists():
        replaced.rename(folder)
    for path in (replaced, work / "tree"):
        shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _some(things: list[str]) -> str:
    more = f", and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return ", ".join(things[:SHOWN]) + more
