"""The end of a run: parts become traces, traces become scores. Runs in a process of its own, not in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dialoom.errors import DialoomError
from dialoom.paid import paid_usage
from dialoom.runtime.folder import open_folder
from dialoom.traces.compact import compact


def finish(path: str, definitions: Sequence[str], gone: Sequence[str] = ()) -> dict[str, Any]:
    """Compact and score the run at ``path``; writes traces and ``scores.json``. ``gone`` as in :func:`compact`.

    Returns ``{"compacted": ..., "paid": see :func:`paid_usage`, "scores": the report as a dict or None, "flat": metric
    name to value, "error": str}``.
    A score that cannot be computed leaves the traces as they are.
    """
    from dialoom.scoring import score_run

    folder = open_folder(path)
    result: dict[str, Any] = {"compacted": asdict(compact(folder, gone)), "paid": paid_usage(folder)}
    result |= {"scores": None, "flat": {}, "error": ""}
    folder.fetch("run.json")
    try:
        report = score_run(folder.path, definitions=list(definitions) or None)
    except DialoomError as error:
        result["error"] = str(error)
        return result
    result["scores"] = report.to_dict()
    result["flat"] = report.flat()
    folder.put_json("scores.json", result["scores"])
    return result
