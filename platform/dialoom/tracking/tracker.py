"""MLflow: one run of the tracking server for one run folder, with live figures and, at the end, everything.

Nothing here may cost a result: a server that is down is noted, and ``dialoom log RUN`` logs later from the folder.
"""

from __future__ import annotations

import logging
import math
import os
import posixpath
import re
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dialoom.errors import DialoomError, TrackingError
from dialoom.front import PLOTS
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.progress import Progress
from dialoom.text import printable

log = logging.getLogger(__name__)

LIVE_S = 10.0
BATCH_METRICS = 900
BATCH_PARAMS = 90
_USER = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^/?#\s]*@")
HIDDEN = "***@"
"""Stands for user name and password in a URI that is shown or stored."""
RUN_IDS = "tracking.json"
"""In the run folder: tracking URI to the id of the MLflow run there."""
_NAME = re.compile(r"[^A-Za-z0-9_\-. /:]")


def default_uri(root: str) -> str:
    """The tracking URI: ``MLFLOW_TRACKING_URI``, else a SQLite store in the run root (here, for a root elsewhere)."""
    place = Path.cwd() if "://" in root else Path(root).absolute()
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / 'mlflow.db'}"


def shown_uri(uri: str) -> str:
    """The URI without user name and password."""
    return _USER.sub(r"\1***@", uri)


class Tracker:
    """Logs one run folder to one tracking server. ``watch`` starts the live figures, ``finish`` logs all the rest."""

    def __init__(self, folder: RunFolder, uri: str, experiment: str) -> None:
        self.uri = uri
        self._folder = folder
        self._experiment = experiment
        self._run_id = ""
        self._client: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._progress: Progress | None = None
        self._lock = threading.Lock()

    def watch(self, progress: Progress) -> None:
        """Log the live figures of ``progress`` every ten seconds, from a thread of its own."""
        self._progress = progress
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, daemon=True, name="tracking")
            self._thread.start()

    def _live(self) -> None:
        started = time.monotonic()
        while not self._stop.wait(LIVE_S):
            try:
                assert self._progress is not None
                self._log_metrics(self._progress.metrics(), step=int(time.monotonic() - started))
            except DialoomError as error:
                log.warning("live figures are not logged: %s", error)

    def finish(self) -> str:
        """Log parameters, metrics, tags and artefacts from the folder. Returns the MLflow run's id.

        Raises TrackingError with what to do where the server cannot be reached or refuses.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        record = self._folder.read_json("run.json") or {}
        scores = self._folder.read_json("scores.json") or {}
        self._connect(record)
        self._guarded(lambda: self._log_params(record))
        self._log_metrics(final_metrics(record, scores, self._folder), step=0)
        self._guarded(lambda: self._log_artifacts(record))
        if scores:
            self._guarded(lambda: self._log_cells(record, scores))
        self._terminate(record)
        return self._run_id

    def _terminate(self, record: Mapping[str, Any]) -> None:
        """End the MLflow run as run.json says that the run has ended."""
        status = {"complete": "FINISHED", "interrupted": "KILLED"}.get(str(record.get("status")), "FAILED")
        self._guarded(lambda: self._client.set_terminated(self._run_id, status=status))

    def fail(self) -> None:
        """End an MLflow run that live figures have opened, where the run cannot go on; never raises."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        if not self._run_id:
            return
        try:
            self._terminate(self._folder.read_json("run.json") or {})
        except DialoomError as error:
            log.warning("the MLflow run is not ended: %s", error)

    def _guarded(self, work: Any) -> Any:
        import requests
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return work()
        except (MlflowException, SQLAlchemyError, OSError, requests.RequestException, ImportError) as error:
            text = shown_uri(str(error).strip().split("\n")[0])
            cause = re.search(r"\[Errno -?\d+\] [^'\")]*", str(error))
            raise TrackingError(
                f"{printable(text, 200)}{f' ({cause[0]})' if cause and cause[0] not in text[:200] else ''}",
                where=shown_uri(self.uri),
                hint=f"Results are safe in {self._folder}; log them later with 'dialoom log {self._folder}'.",
            ) from error

    def _connect(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            if self._client is not None:
                return
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            logging.getLogger("mlflow").setLevel(logging.ERROR)
            logging.getLogger("alembic").setLevel(logging.ERROR)
            self._guarded(lambda: self._open(record))

    def _open(self, record: Mapping[str, Any]) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self.uri)
        found = client.get_experiment_by_name(self._experiment)
        if found is not None:
            experiment_id = found.experiment_id
        else:
            local = self.uri.startswith("sqlite:")
            artifacts = (self._folder.path.absolute().parent / "mlartifacts").as_uri() if local else None
            experiment_id = client.create_experiment(self._experiment, artifact_location=artifacts)
        known = self._folder.read_json(RUN_IDS) or {}
        place = shown_uri(self.uri)
        if place in known:
            try:
                client.update_run(known[place], status="RUNNING")
                self._run_id = known[place]
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # else the store was emptied since
                    raise
        if not self._run_id:
            run = client.create_run(experiment_id, run_name=str(record.get("name", self._folder.path.name)))
            self._run_id = run.info.run_id
            self._folder.put_json(RUN_IDS, {**known, place: self._run_id})
        self._client = client

    def _log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        if self._client is None:
            self._connect(self._folder.read_json("run.json") or {})
        now = int(time.time() * 1000)
        entities = [Metric(metric_name(k), v, now, step) for k, v in metrics.items()]
        for chunk in chunks(entities, BATCH_METRICS):
            self._guarded(lambda chunk=chunk: self._client.log_batch(self._run_id, metrics=chunk))

    def _log_params(self, record: Mapping[str, Any]) -> None:
        from mlflow.entities import Param, RunTag

        from dialoom.tracking.cells import BATCH_TAGS, MOST_CHARACTERS, run_tags

        params = [Param(metric_name(k), str(v)[:5000]) for k, v in flat_params(record).items()]
        for chunk in chunks(params, BATCH_PARAMS):
            self._client.log_batch(self._run_id, params=chunk)
        tags = [RunTag(metric_name(k), str(v)[:MOST_CHARACTERS]) for k, v in run_tags(record).items()]
        for chunk in chunks(tags, BATCH_TAGS):
            self._client.log_batch(self._run_id, tags=chunk)

    def _log_cells(self, record: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
        from dialoom.scoring import ScoreReport
        from dialoom.tracking.cells import log_cells

        known = self._folder.read_json(RUN_IDS) or {}
        head = f"{shown_uri(self.uri)}#"
        children = {k.removeprefix(head): v for k, v in known.items() if k.startswith(head)}

        def save(label: str, run_id: str) -> None:
            known[f"{head}{label}"] = run_id
            self._folder.put_json(RUN_IDS, known)

        report = ScoreReport.from_dict(scores)
        log_cells(self._client, self._run_id, children, record, report, self._folder, save)

    def _log_artifacts(self, record: Mapping[str, Any]) -> None:
        from dialoom.tracking.cells import prompt_names

        prompts = [f"prompts/{name}" for name in prompt_names(record)]
        for name in ("job.yaml", "run.json", "scores.json", *PLOTS, *prompts):
            if self._folder.read(name) is not None:
                self._client.log_artifact(self._run_id, str(self._folder.fetch(name)), name.rpartition("/")[0] or None)


def metric_name(name: str) -> str:
    """``name`` in the form MLflow takes: other characters replaced, a path that leads down, at most 250 characters."""
    return posixpath.normpath(_NAME.sub("_", name)[:250]).lstrip("./") or "_"


def chunks(items: list[Any], size: int) -> Iterable[list[Any]]:
    """``items`` in lists of at most ``size``."""
    return (items[i : i + size] for i in range(0, len(items), size))


def flat_params(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration is: methods, engines, seed, trials, limits; dotted names."""
    from dialoom.runtime.plan import flat

    identity = record.get("identity") or {}
    return {k: v for k, v in flat(identity) if k and not k.startswith("prompts") and v is not None}


def final_metrics(record: Mapping[str, Any], scores: Mapping[str, Any], folder: RunFolder) -> dict[str, float]:
    """Every figure of the finished run, from its folder."""
    from dialoom.costs import run_costs
    from dialoom.scoring import ScoreReport

    metrics: dict[str, Any] = {f"units/{name}": n for name, n in (record.get("outcomes") or {}).items()}
    metrics |= {f"session/{name}": n for name, n in (record.get("last_session") or {}).items()}
    metrics |= {f"cost/{k}": v for k, v in run_costs(folder).items()}
    if scores:
        metrics |= ScoreReport.from_dict(scores).flat()
    return {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float)) and math.isfinite(v)}
