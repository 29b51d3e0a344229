"""What a run was answered for money: every record of its own call log was paid by it once, retries and waste included.

Rows cannot say that. A call that an earlier session of the run paid, or a worker that was lost, counts as replayed in
the row that holds it; one of a unit that was done otherwise later has no row at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dialoom.runtime.calllog import SUFFIX, paid_for, scan
from dialoom.runtime.folder import RunFolder

KEPT = "kept"
"""Writer's name of the segment that ``dialoom calls prune`` writes: it holds copies."""
BEFORE_PRUNE = "paid_before_prune"
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def paid_usage(folder: RunFolder) -> dict[str, dict[str, float]]:
    """Engine to ``calls``, the token counts and ``run_s`` of what this run paid; "" stands for records without a name.

    Raises StorageError.
    """
    before = (folder.read_json("run.json") or {}).get(BEFORE_PRUNE) or {}
    found = {name: Counter(figures) for name, figures in (before.get("engines") or {}).items()}
    for name in folder.names("calls", SUFFIX):
        if _copied(name, int(before.get("epoch") or 0)):
            continue
        path = folder.fetch(name)
        with path.open("rb") as file:
            for _, offset, size in scan(path):
                file.seek(offset)
                paid = paid_for(file.read(size))
                if paid is None:
                    continue
                engine, usage = paid
                sums = found.setdefault(engine, Counter())
                sums["calls"] += 1
                for figure in (*TOKENS, "run_s"):
                    sums[figure] += getattr(usage, figure)
    return {engine: dict(sums) for engine, sums in found.items()}


def _copied(name: str, before_epoch: int) -> bool:
    """Whether what a segment holds is counted elsewhere."""
    epoch, _, writer = name.removeprefix("calls/").removesuffix(SUFFIX).partition("-")
    return writer.partition("-")[0] == KEPT or (epoch.isdigit() and int(epoch) <= before_epoch)


def before_prune(paid: Mapping[str, Mapping[str, float]], epoch: int) -> dict[str, object]:
    """For ``run.json``: what was paid in segments up to ``epoch``, which are about to be written anew."""
    return {BEFORE_PRUNE: {"epoch": epoch, "engines": {name: dict(figures) for name, figures in paid.items()}}}
