"""The call log of a run from outside: what it holds and saves, calls with prompts, and what a cache could serve."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.engine import Message
from dialoom.errors import JobError, RunRefused
from dialoom.paid import KEPT, before_prune, paid_usage
from dialoom.runtime.calllog import SUFFIX, packed, scan
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.recorded import INDEX, engine_entries
from dialoom.traces.read import messages as read_messages
from dialoom.traces.read import read_table

PIECE_BYTES = 8 << 20
"""Records are written again in pieces of about that size."""


@dataclass(frozen=True)
class LogFigures:
    """What a call log holds and what it saved. ``unused`` records are in no trace (those of a unit done again)."""

    segments: int
    records: int
    bytes: int
    unused: int
    calls: int
    replayed: int
    saved_prompt_tokens: int
    saved_output_tokens: int

    @property
    def hit_rate(self) -> float:
        """Share of the run's calls that the log answered."""
        return self.replayed / self.calls if self.calls else 0.0


def figures(folder: RunFolder) -> LogFigures:
    """Size, hit rate and saved tokens of a run. Raises StorageError where it has no traces."""
    import polars as pl

    calls = pl.from_arrow(
        read_table(folder.path, "calls", ["digest", "replayed", "prompt_tokens", "output_tokens"]).combine_chunks()
    )
    assert isinstance(calls, pl.DataFrame)
    hits = calls.filter(pl.col("replayed"))
    used = set(calls["digest"].to_list())
    names = folder.names("calls", SUFFIX)
    digests = {d.hex() for name in names for d, _, _ in scan(folder.fetch(name))}
    return LogFigures(
        segments=len(names),
        records=len(digests),
        bytes=sum(folder.fetch(name).stat().st_size for name in names),
        unused=len(digests - used),
        calls=len(calls),
        replayed=len(hits),
        saved_prompt_tokens=int(hits["prompt_tokens"].sum()),
        saved_output_tokens=int(hits["output_tokens"].sum()),
    )


def prune(folder: RunFolder) -> tuple[int, int]:
    """Rewrite the log with the records that the run's traces refer to. Returns (records kept, records dropped).

    Holds the run's lock: raises RunRefused while the run goes on, and where it is not complete, since its traces do not
    have all calls yet. An interruption leaves both logs, which is harmless.
    """
    with folder.locked():
        head = folder.read_json("run.json") or {}
        if head.get("status") != "complete":
            hint = "Its traces do not have all calls yet. Run its job to the end first."
            raise RunRefused("the run is not complete", where=str(folder), hint=hint)
        used = {bytes.fromhex(d) for d in read_table(folder.path, "calls", ["digest"]).column(0).to_pylist() if d}
        names = folder.names("calls", SUFFIX)
        epoch = folder.next_epoch()
        new = f"calls/{epoch:05d}-{KEPT}{SUFFIX}"
        kept = dropped = appends = 0
        for name in names:
            piece = bytearray()
            for digest, record in _records(folder.fetch(name)):
                if digest not in used:
                    dropped += 1
                    continue
                kept += 1
                piece += record
                if len(piece) >= PIECE_BYTES:
                    folder.append(new, bytes(piece), appends)
                    appends, piece = appends + 1, bytearray()
            if piece:
                folder.append(new, bytes(piece), appends)
                appends += 1
        folder.put_json("run.json", head | before_prune(paid_usage(folder), epoch))
        for name in [*names, *folder.names("calls", INDEX)]:
            folder.remove(name)
    return kept, dropped


def _records(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Digest of every whole record of a segment, and the record."""
    with path.open("rb") as file:
        for digest, offset, size in scan(path):
            file.seek(offset)
            yield digest, packed(digest, file.read(size))


def export(folder: RunFolder, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The run's calls as plain records, prompts written out, in the order of the traces."""
    table = read_table(folder.path, "calls")
    for batch in table.slice(0, most).to_batches(max_chunksize=2000):
        rows = batch.to_pylist()
        texts = read_messages(folder.path, [i for r in rows for i in r["message_ids"] or []])
        for row in rows:
            ids = row.pop("message_ids") or []
            row["messages"] = [{"role": texts[i][0], "content": texts[i][1]} for i in ids if i in texts]
            row["sent_at"] = row["sent_at"].isoformat() if row["sent_at"] else None
            yield row


@dataclass(frozen=True)
class PrefixBound:
    """Prompt tokens of the calls that were sent: all, served from the engine's cache, and what no cache could beat."""

    engine: str
    calls: int
    block_size: int
    prompt_tokens: int
    cached_tokens: int
    bound_tokens: int
    turns: int

    @property
    def share_of_bound(self) -> float | None:
        """Cached tokens over the bound; None where the bound is 0."""
        return self.cached_tokens / self.bound_tokens if self.bound_tokens else None

    @property
    def uncached_a_turn(self) -> float:
        """Prompt tokens a user turn that the engine had to compute."""
        return (self.prompt_tokens - self.cached_tokens) / self.turns if self.turns else 0.0


def prefix_bound(folder: RunFolder, block_size: int) -> list[PrefixBound]:
    """For every engine with a tokenizer: what an unbounded prefix cache of that block size would have served.

    Calls count in the order they were sent, each engine's replicas together. As in vLLM, only whole blocks are shared,
    answers that come back in a later prompt are shared too, and the last token of a prompt is always computed. Raises
    JobError where no engine has a tokenizer.
    """
    from dialoom import registry

    found = []
    for name, entry in engine_entries(folder).items():
        plugin = registry.find("engines", entry["use"])
        if not hasattr(plugin, "prompt_tokens"):
            continue
        settings = {k: v for k, v in entry.items() if k != "use"}
        found.append(_bound(folder, name, plugin.prompt_tokens(plugin.config.model_validate(settings)), block_size))
    if not found:
        raise JobError("no engine of this run has a tokenizer here", where=str(folder), hint="Ask for a vllm engine.")
    return found


def _bound(folder: RunFolder, engine: str, tokens: Callable[[Sequence[Message]], list[int]], block: int) -> PrefixBound:
    import pyarrow.dataset as ds

    sent = (ds.field("engine") == engine) & (ds.field("replayed") == False)  # noqa: E712 - an Arrow expression
    where = sent & (ds.field("finish_reason") != "vectors")
    columns = ["dialogue_id", "turn", "message_ids", "text", "prompt_tokens", "cached_tokens", "sent_at"]
    rows = read_table(folder.path, "calls", columns, where).sort_by("sent_at").to_pylist()
    texts = read_messages(folder.path, [i for r in rows for i in r["message_ids"] or []])
    seen: set[bytes] = set()
    bound = 0
    for row in rows:
        prompt = [Message(*texts[i]) for i in row["message_ids"]]
        bound += cacheable(tokens(prompt), block, seen)
        cacheable(tokens([*prompt, Message("assistant", row["text"] or "")]), block, seen)
    return PrefixBound(
        engine=engine,
        calls=len(rows),
        block_size=block,
        prompt_tokens=sum(r["prompt_tokens"] or 0 for r in rows),
        cached_tokens=sum(r["cached_tokens"] or 0 for r in rows),
        bound_tokens=bound,
        turns=len({(r["dialogue_id"], r["turn"]) for r in rows}),
    )


def cacheable(prompt: Sequence[int], block: int, seen: set[bytes]) -> int:
    """Tokens of ``prompt`` whose blocks, each with all before it, are in ``seen``; its own blocks are added then."""
    parent, served, open_prefix = b"", 0, True
    for start in range(0, len(prompt) - len(prompt) % block, block):
        parent = hashlib.blake2b(parent + repr(prompt[start : start + block]).encode(), digest_size=16).digest()
        open_prefix = open_prefix and parent in seen and start + block < len(prompt)
        served += block if open_prefix else 0
        seen.add(parent)
    return served


def calls_file(folder: RunFolder, out: Path, most: int | None = None) -> int:
    """Write :func:`export` as JSON lines; returns how many."""
    import orjson

    number = 0
    with out.open("wb") as file:
        for record in export(folder, most):
            file.write(orjson.dumps(record) + b"\n")
            number += 1
    return number
