"""What was recorded before a run starts: an index over the segments of the call log, made once for all workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from dialoom.engine import Address
from dialoom.errors import StorageError
from dialoom.runtime.callindex import Covered, Place, Records, Sorted, index_bytes, read_index
from dialoom.runtime.calllog import SUFFIX, scan
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.traces.read import read_table

INDEX = ".index"
WORTH_BYTES = 8 << 20
"""Segments of less than that are read faster by each worker than a process starts that would index them."""


def worth_indexing(sources: Iterable[RunFolder]) -> bool:
    """Whether the recorded calls are so many that an index pays. Raises StorageError."""
    size = 0
    for source in sources:
        size += sum(source.sizes("calls", SUFFIX).values())
        if size >= WORTH_BYTES:
            return True
    return False


def index_calls(run: str, sources: Sequence[str], epoch: int) -> str:
    """Write the index of all records of ``sources`` into the run at ``run``; returns its name there.

    What an older index covers is taken from it: a restart reads only what is new. Raises StorageError.
    """
    folder = open_folder(run)
    old = folder.names("calls", INDEX)
    there = {
        (source, name): size for source in sources for name, size in open_folder(source).sizes("calls", SUFFIX).items()
    }
    covered, before = _older(folder, old, there)
    ends = {(c.source, c.name): c.end for c in covered}
    numbers = {key: number for number, key in enumerate(ends)}
    read = Records()
    for key, size in there.items():
        end = ends.setdefault(key, 0)
        number = numbers.setdefault(key, len(numbers))
        if size > end:
            source, name = key
            for digest, offset, length in scan(open_folder(source).fetch(name), end):
                read.add(digest, Place(number, offset, length))
                ends[key] = offset + length
    name = f"calls/{epoch:05d}{INDEX}"
    whole = Sorted.of(read, *before)
    folder.put(name, index_bytes([Covered(*key, end) for key, end in ends.items()], whole))
    for stale in old:
        folder.remove(stale)
    return name


def engine_entries(folder: RunFolder) -> Mapping[str, Mapping[str, Any]]:
    """Plug-in (``use``) and settings of every engine that ever ran in a run folder, by its name in the traces.

    Raises StorageError.
    """
    known = (folder.read_json("run.json") or {}).get("engine_entries")
    job = {} if known else yaml.safe_load(folder.read("job.yaml") or b"{}") or {}  # older records have the job alone
    return known or job.get("engines") or {}


def answers_used(runs: Sequence[RunFolder], digests: Iterable[bytes]) -> dict[tuple[bytes, Address], tuple[str, float]]:
    """(text, ``run_s``) of the answer that each call of these digests had in the traces of ``runs``, by its address.

    Raises StorageError.
    """
    import pyarrow.dataset as ds

    wanted = [d.hex() for d in digests]
    columns = ["digest", "dialogue_id", "turn", "call", "method", "cell", "trial", "text", "run_s"]
    found: dict[tuple[bytes, Address], tuple[str, float]] = {}
    for run in runs if wanted else ():
        if not run.fetch("traces/calls.parquet").exists():
            continue
        rows = read_table(run.path, "calls", columns, ds.field("digest").isin(wanted)).select(columns)
        for digest, dialogue_id, turn, call, method, cell, trial, text, run_s in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            address = Address(dialogue_id, turn, call, method, cell, trial)
            found[bytes.fromhex(digest), address] = text, run_s
    return found


def _older(
    folder: RunFolder, names: Sequence[str], there: dict[tuple[str, str], int]
) -> tuple[list[Covered], list[Sorted]]:
    """The newest index all of whose segments are still there; nothing where there is none."""
    for name in reversed(names):
        try:
            covered, whole = read_index(folder.fetch(name))
        except StorageError:
            continue
        if all(there.get((c.source, c.name), -1) >= c.end for c in covered):
            return covered, [whole]
    return [], []
