"""The end of a run: parts become traces, traces become scores. Runs in a process of its own, not in the driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dialoom.errors import DialoomError
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.traces.compact import compact

log = logging.getLogger(__name__)

PLOTS = ("pareto.html", "pareto.png")
"""The Pareto front of a run of several methods or cells, in its folder."""


def finish(path: str, definitions: Sequence[str], gone: Sequence[str] = ()) -> dict[str, Any]:
    """Compact and score the run at ``path``; writes traces and ``scores.json``, and ``PLOTS`` where they can be drawn.

    ``gone`` as in :func:`compact`.

    Returns ``{"compacted": ..., "scores": the report as a dict or None, "flat": metric name to value, "error": str}``.
    A score that cannot be computed leaves the traces as they are.
    """
    from dialoom.scoring import score_run

    folder = open_folder(path)
    result: dict[str, Any] = {"compacted": asdict(compact(folder, gone)), "scores": None, "flat": {}, "error": ""}
    folder.fetch("run.json")
    try:
        report = score_run(folder.path, definitions=list(definitions) or None)
    except DialoomError as error:
        result["error"] = str(error)
        return result
    result["scores"] = report.to_dict()
    result["flat"] = report.flat()
    folder.put_json("scores.json", result["scores"])
    if len(report.groups) > 1:
        try:
            _draw(folder, definitions)
        except DialoomError as error:
            log.warning("no Pareto plot: %s", error)
    return result


def _draw(folder: RunFolder, definitions: Sequence[str]) -> None:
    from dialoom.plot import lacking, pareto_chart, rendered

    if lacking():
        return
    from dialoom.overview import overview
    from dialoom.stats import Resampling
    from dialoom.systems import scored_systems

    scored = scored_systems(folder.path, list(definitions) or None, Resampling(), several=False)
    ranked = overview([s.system for s in scored])
    chart = pareto_chart(ranked.systems, ranked.lead)
    for name in PLOTS:
        folder.put(name, rendered(chart, name.rpartition(".")[2]))
