"""Where recorded answers lie: digests in order with their places, 32 bytes a record, in memory or mapped from a file.

Every worker needs to find every recorded answer. At the start of a run one process reads the segments and writes the
index; the workers map it, so that it costs them neither time nor memory of their own.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from dialoom.errors import StorageError
from dialoom.runtime.folder import RunFolder, open_folder, storage_errors

SETTLE = 20_000
"""So many records are kept in a dictionary before they become arrays."""
_MAGIC = b"DLI1"
_HALVES = struct.Struct("=QQ")
_ALIGN = 64

Numbers = npt.NDArray[np.uint64]


class Place(NamedTuple):
    """Where a response lies: number of the file, offset, size in bytes."""

    file: int
    offset: int
    size: int


class Records:
    """Digests and places as they are read."""

    def __init__(self) -> None:
        self.digests = bytearray()
        self.offsets = array("Q")
        self.files = array("I")
        self.sizes = array("I")

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, digest: bytes, place: Place) -> None:
        self.digests += digest
        self.files.append(place.file)
        self.offsets.append(place.offset)
        self.sizes.append(place.size)


class Sorted:
    """Records in the order of their digests; those of one digest in the order in which they were added."""

    def __init__(self, columns: Sequence[npt.NDArray[np.generic]]) -> None:
        self.columns = columns
        self._heads, self._tails, self._offsets, self._files, self._sizes = columns
        # A binary search for one number costs a third in a plain buffer of what it costs in an array.
        self._heads_read, self._tails_read = self._heads.data, self._tails.data

    @classmethod
    def of(cls, records: Records, *before: Sorted) -> Sorted:
        """``records`` after those of ``before``."""
        halves = np.frombuffer(bytes(records.digests), dtype=np.uint64).reshape(-1, 2)
        new = (halves[:, 0], halves[:, 1], np.array(records.offsets, np.uint64),
               np.array(records.files, np.uint32), np.array(records.sizes, np.uint32))  # fmt: skip
        columns = [np.concatenate(parts) for parts in zip(*(b.columns for b in before), new, strict=True)]
        order = np.lexsort((columns[1], columns[0]))  # stable: the records of one digest keep their order
        return cls([column[order] for column in columns])

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, digest: bytes) -> list[Place]:
        """Places of the records of ``digest``."""
        head, tail = _HALVES.unpack(digest)
        heads = self._heads_read
        position = bisect_left(heads, head)
        found = []
        while position < len(heads) and heads[position] == head:
            if self._tails_read[position] == tail:
                found.append(self._place(position))
            position += 1
        return found

    def _place(self, position: int) -> Place:
        return Place(int(self._files[position]), int(self._offsets[position]), int(self._sizes[position]))

    def digests(self) -> Iterator[bytes]:
        """Every digest, each as often as it was recorded."""
        for head, tail in zip(self._heads, self._tails, strict=True):
            yield head.tobytes() + tail.tobytes()

    def repeated(self) -> set[bytes]:
        """Digests with more than one record."""
        same = (self._heads[1:] == self._heads[:-1]) & (self._tails[1:] == self._tails[:-1])
        return {self._heads[i].tobytes() + self._tails[i].tobytes() for i in np.flatnonzero(same)}


class CallIndex:
    """All records that a call log can answer from: what was indexed before, what was read, what is written now."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str]] = []
        self._paths: dict[int, Path] = {}
        self._sorted: list[Sorted] = []
        self._recent: dict[bytes, Place] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sorted)) + len(self._recent)

    def file(self, source: RunFolder | str, name: str, path: Path | None = None) -> int:
        """Number of the file ``name`` of a run folder; it is fetched when a record of it is wanted."""
        self._files.append((str(source), name))
        if path is not None:
            self._paths[len(self._files) - 1] = path
        return len(self._files) - 1

    def path(self, file: int) -> Path:
        """The file, on this machine. Raises StorageError."""
        if file not in self._paths:
            source, name = self._files[file]
            self._paths[file] = open_folder(source).fetch(name)
        return self._paths[file]

    def name(self, file: int) -> str:
        """Run folder and name of a file."""
        return "/".join(self._files[file])

    def learn(self, files: Iterable[tuple[int, Iterable[tuple[bytes, int, int]]]]) -> None:
        """Add the records (digest, offset, size) of files."""
        read = Records()
        for file, records in files:
            for digest, offset, size in records:
                read.add(digest, Place(file, offset, size))
        self._settle()
        self._merge(read)

    def add(self, digest: bytes, place: Place) -> None:
        """Add one record."""
        self._recent[digest] = place
        if len(self._recent) >= SETTLE:
            self._settle()

    def _settle(self) -> None:
        read = Records()
        for digest, place in self._recent.items():
            read.add(digest, place)
        self._recent = {}
        self._merge(read)

    def _merge(self, read: Records) -> None:
        """Arrays of like size become one, so that there are few of them."""
        if not len(read):
            return
        like: list[Sorted] = []
        total = len(read)
        while self._sorted and len(self._sorted[-1]) <= 2 * total:
            like.append(self._sorted.pop())
            total += len(like[-1])
        self._sorted.append(Sorted.of(read, *reversed(like)))

    def find(self, digest: bytes) -> list[Place]:
        """Places of all records of ``digest``, the oldest first."""
        found = [place for each in self._sorted for place in each.find(digest)]
        if digest in self._recent:
            found.append(self._recent[digest])
        return found

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._recent or any(each.find(digest) for each in self._sorted)

    def digests(self) -> list[bytes]:
        """Every digest once."""
        return list(dict.fromkeys([*(d for each in self._sorted for d in each.digests()), *self._recent]))

    def repeated(self) -> set[bytes]:
        """Digests that one of the arrays holds more than once."""
        return set().union(*(each.repeated() for each in self._sorted))

    def load(self, path: Path) -> None:
        """Map an index file, before anything else is added. Raises StorageError."""
        covered, whole = read_index(path)
        self._files = [(c.source, c.name) for c in covered]
        self._sorted.append(whole)


class Covered(NamedTuple):
    """A segment that an index covers, up to the byte ``end``."""

    source: str
    name: str
    end: int


_TYPES = (np.uint64, np.uint64, np.uint64, np.uint32, np.uint32)


def index_bytes(covered: Sequence[Covered], whole: Sorted) -> bytes:
    """An index as a file: ``DLI1``, the length of the JSON head and the head, then the five columns, each aligned."""
    head = orjson.dumps({"files": [list(c) for c in covered], "records": len(whole)})
    out = bytearray(_MAGIC + len(head).to_bytes(8, "little") + head)
    for column, kind in zip(whole.columns, _TYPES, strict=True):
        out += bytes(-len(out) % _ALIGN)
        out += np.ascontiguousarray(column, dtype=kind).tobytes()
    return bytes(out)


def read_index(path: Path) -> tuple[list[Covered], Sorted]:
    """The index at ``path``, mapped and not read. Raises StorageError where it is none, or cut short."""
    with storage_errors(path):
        try:
            whole = np.memmap(path, dtype=np.uint8, mode="r")
            if bytes(whole[:4]) != _MAGIC:
                raise ValueError("it is no index of calls")
            size = int.from_bytes(bytes(whole[4:12]), "little")
            head = orjson.loads(bytes(whole[12 : 12 + size]))
            position, columns = 12 + size, []
            for kind in _TYPES:
                position += -position % _ALIGN
                end = position + head["records"] * np.dtype(kind).itemsize
                if end > len(whole):
                    raise ValueError("it is cut short")
                columns.append(np.asarray(whole[position:end]).view(kind))
                position = end
            return [Covered(*entry) for entry in head["files"]], Sorted(columns)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"is damaged: {error}", where=str(path), hint="It can be removed.") from error
