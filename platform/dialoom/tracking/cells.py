"""Methods and sweep cells as MLflow child runs under the run's own, and their table on the parent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dialoom.runtime.folder import RunFolder

if TYPE_CHECKING:
    from dialoom.scoring import GroupScores, ScoreReport

BATCH_METRICS = 900
BATCH_PARAMS = 90
BATCH_TAGS = 90
MOST_CHARACTERS = 4000
"""Of a tag's value."""


def identities(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Sweep cell to what decides its results; the cell of a run without a sweep is ""."""
    identity = record.get("identity") or {}
    return dict(identity.get("cells") or {"": identity})


def prompt_names(record: Mapping[str, Any]) -> list[str]:
    """Every prompt of a run as its folder names it, below ``prompts/``."""
    found = identities(record).items()
    return [f"{cell}/{name}" if cell else name for cell, own in found for name in own.get("prompts") or {}]


def run_tags(record: Mapping[str, Any], method: str | None = None, cell: str | None = None) -> dict[str, Any]:
    """Digest, code version, engine and model revisions, prompt and data hashes; status of the whole run.

    Of one method and cell, or of the whole run: where its cells differ their values stand one after another.
    """
    from dialoom.runtime.plan import digest_of

    chosen = {c: own for c, own in identities(record).items() if cell is None or c == cell}
    tags: dict[str, Any] = {}
    if method is None:
        tags |= {"dialoom.digest": record.get("digest"), "dialoom.status": record.get("status")}
    else:
        tags["dialoom.digest"] = digest_of(chosen[cell or ""]) if (cell or "") in chosen else None
    tags |= {f"version.{name}": version for name, version in (record.get("versions") or {}).items()}
    several: dict[str, dict[str, None]] = {}
    for own in chosen.values():
        used = ((own.get("methods") or {}).get(method) or {}).get("roles") if method is not None else None
        for name, engine in (own.get("engines") or {}).items():
            for key in ("model", "revision", "version") if used is None or name in used.values() else ():
                several.setdefault(f"engine.{name}.{key}", {})[str(engine.get(key) or "")] = None
        for name, text in (own.get("prompts") or {}).items():
            if method is None or name.startswith(f"{method}/"):
                several.setdefault(f"prompt.{name}", {})[text] = None
    tags |= {name: ", ".join(v for v in values if v) for name, values in several.items()}
    tags |= {f"data.{i}": f"{d['name']} {d['sha256']}" for i, d in enumerate((record.get("data") or [])[:50])}
    return {k: v for k, v in tags.items() if v}


def log_cells(
    client: Any,
    parent_id: str,
    known: Mapping[str, str],
    record: Mapping[str, Any],
    report: ScoreReport,
    folder: RunFolder,
    save: Callable[[str, str], None],
) -> None:
    """One child run for each method and cell of ``report``, made or updated.

    ``known`` are the ids of children logged before, by label; one that is made goes to ``save`` (label, id) at once.
    The server's own list comes first: a driver may die before it has saved. A report of one group needs no child: its
    figures are the parent's.
    """
    from mlflow.exceptions import MlflowException

    from dialoom.costs import costs
    from dialoom.tabular import markdown

    if len(report.groups) < 2:
        return
    experiment = client.get_run(parent_id).info.experiment_id
    spent = costs(folder)
    known = {**known, **children_of(client, experiment, parent_id)}
    for group in report.groups:
        child = known.get(group.label, "")
        try:
            if child:
                client.update_run(child, status="RUNNING")
        except MlflowException:
            child = ""
        if not child:
            run = client.create_run(experiment, run_name=group.label, tags={"mlflow.parentRunId": parent_id})
            child = run.info.run_id
            save(group.label, child)
        cost = spent.get((group.method, group.cell))
        _log_group(client, child, group, record, {} if cost is None else cost.per_thousand())
        client.set_terminated(child, status="FINISHED" if group.coverage.share == 1 else "FAILED")
    client.log_text(parent_id, markdown(report.table()), "cells.md")


def children_of(client: Any, experiment: str, parent_id: str) -> dict[str, str]:
    """Name to id of the child runs that the server has of a run; the oldest of a name."""
    found: dict[str, str] = {}
    token = None
    while True:
        page = client.search_runs(
            [experiment], f"tags.`mlflow.parentRunId` = '{parent_id}'", order_by=["start_time ASC"], page_token=token
        )
        for run in page:
            found.setdefault(run.info.run_name, run.info.run_id)
        token = page.token
        if not token:
            return found


def _log_group(
    client: Any, run_id: str, group: GroupScores, record: Mapping[str, Any], cost: Mapping[str, float]
) -> None:
    from mlflow.entities import Metric, Param, RunTag

    from dialoom.runtime.plan import flat
    from dialoom.tracking.tracker import chunks, metric_name

    fields = (record.get("cells") or {}).get(group.cell) or {}
    own = identities(record).get(group.cell) or {}
    settings = {k: v for k, v in flat(own) if k and v is not None and not k.startswith("prompts")}
    named = {"method": group.method, "cell": group.cell, **{f"cell.{k}": v for k, v in fields.items()}}
    params = [Param(metric_name(k), str(v)[:5000]) for k, v in {**settings, **named}.items() if v != ""]
    for chunk in chunks(params, BATCH_PARAMS):
        client.log_batch(run_id, params=chunk)
    tags = [
        RunTag(metric_name(k), str(v)[:MOST_CHARACTERS]) for k, v in run_tags(record, group.method, group.cell).items()
    ]
    for chunk in chunks(tags, BATCH_TAGS):
        client.log_batch(run_id, tags=chunk)
    now = int(time.time() * 1000)
    figures = {**group.flat(), **{f"cost/{k}": v for k, v in cost.items()}}
    metrics = [Metric(metric_name(k), v, now, 0) for k, v in figures.items() if v == v]
    for chunk in chunks(metrics, BATCH_METRICS):
        client.log_batch(run_id, metrics=chunk)
