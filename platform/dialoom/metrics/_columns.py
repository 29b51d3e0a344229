"""Arrow list columns as flat numpy arrays, and strings as integer codes: what keeps a million turns fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dialoom.metric import Bools, Ints


class Lists(NamedTuple):
    """A list column: row ``i`` holds entries ``offsets[i]`` to ``offsets[i + 1]`` of ``entries``."""

    offsets: Ints
    entries: pa.Array
    valid: Bools
    """Whether the row is not null."""

    @property
    def rows(self) -> Ints:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def fields(self) -> list[pa.Array]:
        """The entries' struct fields, in order."""
        return list(self.entries.flatten())


def lists(column: pa.Array | pa.ChunkedArray) -> Lists:
    """``column`` (any list type) taken apart."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return Lists(offsets, array.flatten(), valid)


def encode(arrays: Sequence[pa.Array]) -> tuple[list[str], list[Ints]]:
    """The distinct texts of all ``arrays`` together, and each array as indices into them; null is the empty text."""
    text = pa.concat_arrays([a.cast(pa.large_string()).fill_null("") for a in arrays])
    coded = text.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum([len(a) for a in arrays])
    return coded.dictionary.to_pylist(), list(np.split(codes, ends[:-1]))


def joined(parts: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """The distinct keys of all ``parts``, and each part as indices into them."""
    keys, at = numbered(np.concatenate(parts))
    ends = np.cumsum([len(p) for p in parts])
    return keys, list(np.split(at, ends[:-1]))


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """The sorted distinct ``keys`` (none negative), and each key as its index among them.

    Without sorting where the keys lie close together, as pairs of codes do.
    """
    size = int(keys.max(initial=-1)) + 1
    if size > 4 * len(keys) + 1_000_000:
        found, inverse = np.unique(keys, return_inverse=True)
        return found.astype(np.int64), inverse.astype(np.int64)
    present = np.zeros(size, dtype=np.bool_)
    present[keys] = True
    ids = np.cumsum(present) - 1
    return np.flatnonzero(present), ids[keys]


def distinct(*parts: Ints) -> Ints:
    """The sorted distinct keys of all ``parts``; quick where these are sorted already: a stable sort merges runs."""
    keys = np.sort(np.concatenate(parts), kind="stable")
    result: Ints = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return result


def spread(starts: Ints, lengths: Ints) -> Ints:
    """All of ``starts[i], starts[i] + 1, ..`` (``lengths[i]`` of them), one after the other."""
    before = np.cumsum(lengths) - lengths
    result: Ints = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return result


def latest(valid: Bools, dialogue: Ints) -> Ints:
    """For each row the last row up to it, in the same dialogue, that is ``valid``; -1 where there is none."""
    if not len(valid):
        return np.empty(0, dtype=np.int64)
    source = np.maximum.accumulate(np.where(valid, np.arange(len(valid)), -1))
    return np.where((source >= 0) & (dialogue[source] == dialogue), source, -1)


def until_next(row: Ints, key: Ints, row_dialogue: Ints) -> Ints:
    """For events at ``row`` of a track ``key`` (one track per dialogue and thing): how many rows each one holds for.

    An event holds from its row to the next event of its track in the same dialogue, else to the dialogue's end.
    Events must be sorted by (key, row); ``row_dialogue`` is every row's dialogue, sorted.
    """
    if not len(row):
        return np.empty(0, dtype=np.int64)
    end = np.searchsorted(row_dialogue, row_dialogue[row], side="right")
    following = np.append(row[1:], 0)
    same = np.append((key[1:] == key[:-1]) & (row_dialogue[row[1:]] == row_dialogue[row[:-1]]), False)
    return np.where(same, following, end) - row


def find_keys(keys: Ints, wanted: Ints) -> Ints:
    """Position of each of ``wanted`` in ``keys`` (sorted, distinct), -1 where it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def last_of_each(key: Ints) -> Ints:
    """Indices, sorted by key, of the last occurrence of every distinct ``key``."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    return order[np.append(ordered[1:] != ordered[:-1], True)] if len(key) else order


def once_per_pair(a: Ints, b: Ints, function: Callable[[int, int], float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """``function(a[i], b[i])`` for every i, called once per distinct pair."""
    if not len(a):
        return np.empty(0)
    width = int(b.max()) + 1
    keys, inverse = numbered(a * width + b)
    scores = np.fromiter((function(k // width, k % width) for k in keys.tolist()), np.float64, len(keys))
    return scores[inverse]


class Interned:
    """Hashable things as consecutive ids."""

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.ids: dict[Any, int] = {}
        for thing in first:
            self.id(thing)

    def id(self, thing: Any) -> int:
        """The id of ``thing``, a new one the first time."""
        return self.ids.setdefault(thing, len(self.ids))

    @property
    def things(self) -> list[Any]:
        """Everything, by id."""
        return list(self.ids)
