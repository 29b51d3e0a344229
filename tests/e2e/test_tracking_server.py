"""A real MLflow server: all arrives; a server that is killed costs nothing, and one that is back gets the rest."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import TrackingError
from dialoom.tracking.tracker import Tracker
from support.command import command
from support.http_server import Endpoint, Reply
from support.runs import finished_folder

pytestmark = pytest.mark.timeout(400)  # the server is slow to start on a busy machine


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """``mlflow server`` with its store in ``folder``, up and answering; killed with all its processes at the end."""
    words = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += [
        "--backend-store-uri",
        f"sqlite:///{folder / 'store.db'}",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            stdout=log,
            stderr=log,
            env=os.environ | quiet,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 180
        while not answers(port):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def test_a_server_that_is_killed_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dialoom = command(monkeypatch, capsys)
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    folder = finished_folder(tmp_path / "run", tracking={"uri": uri, "experiment": "served"})
    with server(tmp_path, port):
        run_id = Tracker(folder, uri, "served").finish()
        run = client(uri).get_run(run_id)
        assert run.data.metrics["units/accepted"] == 5
        assert run.data.params["methods.tiny.settings.calls"] == "2"
        assert run.info.status == "FINISHED"
        local = client(uri).download_artifacts(run_id, "prompts/tiny/system.txt", str(tmp_path))
        assert Path(local).read_text() == "You answer."

    folder.put_json("run.json", (folder.read_json("run.json") or {}) | {"outcomes": {"accepted": 9}})
    started = time.monotonic()
    down = dialoom("log", folder)
    assert time.monotonic() - started < 60
    assert down.status == 2
    assert "Connection refused" in down.err
    assert f"Results are safe in {folder}; log them later with 'dialoom log {folder}'." in down.err

    with server(tmp_path, port):
        back = dialoom("log", folder)
        assert back.status == 0, back.err
        assert f"logged as MLflow run {run_id} at {uri}" in back.out
        assert client(uri).get_run(run_id).data.metrics["units/accepted"] == 9


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"error_code": "INTERNAL_ERROR", "message": "broken on purpose"}, status=500),
        Reply({"error_code": "PERMISSION_DENIED", "message": "wrong password"}, status=403),
        Reply(b"<html>not an API</html>"),
        Reply({}, fault="reset"),
        Reply({}, fault="half"),
        Reply({}, fault="hang"),
    ],
    ids=["500", "403", "html", "reset", "half", "hang"],
)
def test_a_server_that_misbehaves_is_a_tracking_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = finished_folder(tmp_path)
    with Endpoint(reply, models=reply) as endpoint:
        uri = endpoint.url.replace("http://", "http://user:secret@")
        with pytest.raises(TrackingError, match="Results are safe in") as caught:
            Tracker(folder, uri, "x").finish()
    assert "secret" not in str(caught.value)
