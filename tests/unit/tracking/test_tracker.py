"""MLflow on a real SQLite store: everything of a run in one MLflow run, and a store that is away costs nothing."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import TrackingError
from dialoom.runtime.progress import Progress
from dialoom.tracking import tracker as tracker_module
from dialoom.tracking.cells import run_tags
from dialoom.tracking.tracker import (
    RUN_IDS,
    Tracker,
    chunks,
    default_uri,
    flat_params,
    metric_name,
    shown_uri,
)
from support.jobs import TINY
from support.runs import finished_folder

pytestmark = pytest.mark.timeout(300)  # a new store is seconds of work, and more on a busy machine


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store; making its tables takes seconds, so the tests of this file share it."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


def client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def logged(uri: str, run_id: str) -> Any:
    return client(uri).get_run(run_id)


def test_everything_of_a_run_is_logged(tmp_path: Path, store: str) -> None:
    folder = finished_folder(tmp_path, methods=[TINY | {"calls": 3}], seed=7)
    run_id = Tracker(folder, store, "first").finish()
    run = logged(store, run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "small"
    assert run.data.params["methods.tiny.settings.calls"] == "3"
    assert run.data.params["seed"] == "7"
    assert run.data.params["engines.main.model"] == "scripted"
    figures = {k: v for k, v in run.data.metrics.items() if k.startswith(("units/", "session/"))}
    assert figures == {"units/accepted": 5, "units/bad_input": 1, "session/seconds": 1.5, "session/calls": 10}
    tags = run.data.tags
    assert tags["dialoom.digest"] == (folder.read_json("run.json") or {})["digest"]
    assert tags["data.0"] == "data.jsonl abc"
    assert tags["version.dialoom"]
    assert tags["prompt.tiny/system.txt"]
    artifacts = [a.path for a in client(store).list_artifacts(run_id)]
    assert artifacts == ["job.yaml", "prompts", "run.json"]
    (prompt,) = client(store).list_artifacts(run_id, "prompts/tiny")
    assert Path(client(store).download_artifacts(run_id, prompt.path)).read_text() == "You answer."


def test_logging_again_updates_the_same_run(tmp_path: Path, store: str) -> None:
    folder = finished_folder(tmp_path)
    first = Tracker(folder, store, "again").finish()
    record = folder.read_json("run.json") or {}
    folder.put_json("run.json", record | {"outcomes": {"accepted": 6}, "status": "interrupted"})
    assert Tracker(folder, store, "again").finish() == first
    run = logged(store, first)
    assert run.data.metrics["units/accepted"] == 6
    assert run.info.status == "KILLED"
    experiment = client(store).get_experiment_by_name("again")
    assert len(client(store).search_runs([experiment.experiment_id])) == 1


def test_a_store_that_was_emptied_gets_a_new_run(tmp_path: Path, store: str) -> None:
    folder = finished_folder(tmp_path)
    folder.put_json(RUN_IDS, {store: "0" * 32})
    run_id = Tracker(folder, store, "emptied").finish()
    assert run_id != "0" * 32
    assert folder.read_json(RUN_IDS) == {store: run_id}


def test_many_metrics_go_in_batches(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"group/metric {i}": float(i) for i in range(1500)}
    monkeypatch.setattr(tracker_module, "final_metrics", lambda *_: names)
    run = logged(store, Tracker(finished_folder(tmp_path), store, "many").finish())
    assert run.data.metrics == names


def test_names_that_mlflow_refuses_are_made_fit(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nasty = {"a[b](c)%": 1.0, "日本": 2.0, "x" * 300: 3.0}
    monkeypatch.setattr(tracker_module, "final_metrics", lambda *_: nasty)
    monkeypatch.setattr(tracker_module, "flat_params", lambda _: {"p[0]": "x" * 9000, "日": "y"})
    run = logged(store, Tracker(finished_folder(tmp_path), store, "nasty").finish())
    assert run.data.metrics == {"a_b__c__": 1.0, "__": 2.0, "x" * 250: 3.0}
    assert run.data.params == {"p_0_": "x" * 5000, "_": "y"}


def logged_live(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns when ``tracker`` has logged its figures twice."""
    monkeypatch.setattr(tracker_module, "LIVE_S", 0.05)
    logged_twice = threading.Event()
    original = Tracker._log_metrics
    seen: list[int] = []

    def counted(self: Tracker, metrics: Any, step: int) -> None:
        original(self, metrics, step)
        seen.append(step)
        if len(seen) == 2:
            logged_twice.set()

    monkeypatch.setattr(Tracker, "_log_metrics", counted)
    progress = Progress()
    progress.done = 3
    tracker.watch(progress)
    assert logged_twice.wait(60)


def test_live_figures_are_steps(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(finished_folder(tmp_path), store, "live")
    logged_live(tracker, monkeypatch)
    run_id = tracker.finish()
    history = client(store).get_metric_history(run_id, "live/units_done")
    assert len(history) >= 2
    assert {m.value for m in history} == {3.0}


def test_a_run_that_cannot_go_on_is_not_left_running(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished_folder(tmp_path)
    folder.put_json("run.json", {**(folder.read_json("run.json") or {}), "status": "engine"})
    never_watched = Tracker(folder, store, "failed")
    never_watched.fail()
    tracker = Tracker(folder, store, "failed")
    logged_live(tracker, monkeypatch)
    tracker.fail()
    (run,) = client(store).search_runs([client(store).get_experiment_by_name("failed").experiment_id])
    assert run.info.status == "FAILED"


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_server_that_is_down_is_said_at_once(tmp_path: Path, nobody: int) -> None:
    import mlflow.tracking

    assert mlflow.tracking.MlflowClient
    folder = finished_folder(tmp_path)
    started = time.monotonic()
    with pytest.raises(TrackingError) as caught:
        Tracker(folder, f"http://user:secret@127.0.0.1:{nobody}", "x").finish()
    assert time.monotonic() - started < 30
    text = str(caught.value)
    assert text.startswith(f"http://***@127.0.0.1:{nobody}: ")
    assert "Connection refused" in text
    assert f"Results are safe in {folder}; log them later with 'dialoom log {folder}'." in text
    assert "secret" not in text
    assert "user:" not in text


def test_a_server_that_is_down_does_not_disturb_the_run(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracker_module, "LIVE_S", 0.01)
    monkeypatch.setattr(logging.getLogger("dialoom"), "propagate", True)
    tracker = Tracker(finished_folder(tmp_path), f"http://user:secret@127.0.0.1:{nobody}", "x")
    tracker.watch(Progress())
    with pytest.raises(TrackingError):
        tracker.finish()
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////proc/nope/mlflow.db",
        "postgresql+nodriver://user:secret@127.0.0.1/db",
        "nosuchscheme://user:secret@x",
        "http://user:secret@no.such.host.invalid",
    ],
)
def test_places_that_cannot_be_used(tmp_path: Path, uri: str) -> None:
    with pytest.raises(TrackingError) as caught:
        Tracker(finished_folder(tmp_path), uri, "x").finish()
    assert "secret" not in str(caught.value)


def test_no_password_reaches_the_run_folder(tmp_path: Path) -> None:
    folder = finished_folder(tmp_path, tracking={"uri": "https://user:secret@mlflow.example/x"})
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes()
    assert b"https://***@mlflow.example/x" in (folder.read("job.yaml") or b"")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://user:pass@host:80/x?y", "http://***@host:80/x?y"),
        ("http://host/x@y", "http://host/x@y"),
        ("postgresql+psycopg2://u:p%40w@h/db", "postgresql+psycopg2://***@h/db"),
        ("http://token@h", "http://***@h"),
        ("http://u:p@ss@h/x", "http://***@h/x"),
        ("sqlite:////a/b@c.db", "sqlite:////a/b@c.db"),
        ("databricks", "databricks"),
        ("http://[bad", "http://[bad"),
        ("API request to http://u:p@h/x failed", "API request to http://***@h/x failed"),
    ],
)
def test_passwords_are_never_shown(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert default_uri("runs") == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert default_uri("s3://bucket/runs") == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://x")
    assert default_uri("runs") == "http://x"


@given(st.lists(st.integers()), st.integers(1, 9))
def test_chunks(items: list[int], size: int) -> None:
    found = list(chunks(items, size))
    assert [i for chunk in found for i in chunk] == items
    assert all(1 <= len(c) <= size for c in found)


@given(st.text())
def test_names(name: str) -> None:
    made = metric_name(name)
    assert metric_name(made) == made
    assert len(made) <= 250
    assert made.isascii()


def test_a_record_with_nothing_in_it() -> None:
    assert flat_params({}) == {}
    assert run_tags({}) == {}
