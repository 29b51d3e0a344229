"""Methods and sweep cells as MLflow child runs under the run's own, and their table on the parent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dialoom.runtime.folder import RunFolder

if TYPE_CHECKING:
    from dialoom.scoring import GroupScores, ScoreReport

BATCH_METRICS = 900
BATCH_PARAMS = 90


def log_cells(
    client: Any,
    parent_id: str,
    known: Mapping[str, str],
    record: Mapping[str, Any],
    report: ScoreReport,
    folder: RunFolder,
) -> dict[str, str]:
    """One child run for each method and cell of ``report``, made or updated; returns label to run id.

    ``known`` are children logged before. A report of one group needs no child: its figures are the parent's.
    """
    from mlflow.exceptions import MlflowException

    from dialoom.costs import costs
    from dialoom.tabular import markdown

    if len(report.groups) < 2:
        return {}
    experiment = client.get_run(parent_id).info.experiment_id
    spent = costs(folder)
    children = {}
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
        cost = spent.get((group.method, group.cell))
        _log_group(client, child, group, record, {} if cost is None else cost.per_thousand())
        client.set_terminated(child, status="FINISHED" if group.coverage.share == 1 else "FAILED")
        children[group.label] = child
    client.log_text(parent_id, markdown(report.table()), "cells.md")
    return children


def _log_group(
    client: Any, run_id: str, group: GroupScores, record: Mapping[str, Any], cost: Mapping[str, float]
) -> None:
    from mlflow.entities import Metric, Param

    from dialoom.runtime.plan import flat
    from dialoom.tracking.tracker import chunks, metric_name

    fields = (record.get("cells") or {}).get(group.cell) or {}
    identity = record.get("identity") or {}
    own = (identity.get("cells") or {}).get(group.cell, identity)
    settings = {k: v for k, v in flat(own) if k and v is not None and not k.startswith("prompts")}
    named = {"method": group.method, "cell": group.cell, **{f"cell.{k}": v for k, v in fields.items()}}
    params = [Param(metric_name(k), str(v)[:5000]) for k, v in {**settings, **named}.items() if v != ""]
    for chunk in chunks(params, BATCH_PARAMS):
        client.log_batch(run_id, params=chunk)
    now = int(time.time() * 1000)
    figures = {**group.flat(), **{f"cost/{k}": v for k, v in cost.items()}}
    metrics = [Metric(metric_name(k), v, now, 0) for k, v in figures.items() if v == v]
    for chunk in chunks(metrics, BATCH_METRICS):
        client.log_batch(run_id, metrics=chunk)
