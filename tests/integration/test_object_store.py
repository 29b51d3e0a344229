"""A run folder on S3: the same run as on disk, resumed from the store alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from dialoom.errors import RunRefused, StorageError
from dialoom.job import load_job
from dialoom.run import RunResult, run
from dialoom.runtime.folder import open_folder
from dialoom.runtime.plan import make_plan
from dialoom.runtime.remote_folder import RemoteFolder

pytestmark = pytest.mark.timeout(300)  # Ray's processes are slow to start on a busy machine

ROOT = Path(__file__).parents[2]
NAMES = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server on this machine with one bucket; its URL."""
    boto3 = pytest.importorskip("boto3")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in NAMES.items():
        patch.setenv(name, value)
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    patch.setenv("DIALOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
    boto3.client("s3").create_bucket(Bucket="runs")
    yield f"s3://runs/{uuid.uuid4().hex[:8]}"
    patch.undo()
    server.stop()


def job_file(folder: Path, root: str, *, limit: int | None = None) -> Path:
    """The bundled sample through the tracker, scripted."""
    data: dict[str, Any] = {"reader": "chat", "paths": str(ROOT / "jobs/data/sample.jsonl")}
    if limit is not None:
        data["limit"] = limit
    job = {
        "name": "sample",
        "data": data,
        "schema": {"path": str(ROOT / "schemas/sample.yaml")},
        "methods": ["tracker"],
        "engines": {"m": {"use": "scripted", "rule": "dialoom.methods.tracker._rule:answer", "concurrency": 8}},
        "scores": ["joint_goal", "effort"],
        "run": {"root": root},
        "tracking": {"enabled": False},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def run_job(folder: Path, root: str, *, limit: int | None = None) -> RunResult:
    return run(make_plan(*load_job(job_file(folder, root, limit=limit))))


def turns(path: Path) -> pl.DataFrame:
    columns = ["dialogue_id", "turn", "state", "delta", "outcome"]
    return pl.read_parquet(path / "traces" / "turns.parquet").select(columns).sort("dialogue_id", "turn")


def test_a_run_on_s3_equals_one_on_disk_and_resumes(bucket: str, tmp_path: Path) -> None:
    local = run_job(tmp_path, str(tmp_path / "runs"))
    first = run_job(tmp_path, bucket, limit=5)
    assert first.complete
    assert first.progress.done == 5
    whole = run_job(tmp_path, bucket)
    assert whole.complete
    assert whole.progress.skipped == 5
    assert whole.progress.done == local.progress.done - 5
    folder = open_folder(f"{bucket}/sample")
    assert isinstance(folder, RemoteFolder)
    assert {n.rsplit("/", 1)[-1] for n in folder.names("traces", ".parquet")} == {
        "calls.parquet",
        "dialogues.parquet",
        "messages.parquet",
        "turns.parquet",
    }
    folder.fetch("traces/turns.parquet")
    assert turns(folder.path).equals(turns(local.folder.path))
    assert whole.flat["joint_goal/joint_goal_accuracy"] == local.flat["joint_goal/joint_goal_accuracy"]


def test_a_recorded_run_on_s3_replays(bucket: str, tmp_path: Path) -> None:
    run_job(tmp_path, f"{bucket}/again")
    file = job_file(tmp_path, str(tmp_path / "runs"))
    job, yaml_file = load_job(file, {"run.reuse": [f"{bucket}/again/sample"]})
    result = run(make_plan(job, yaml_file))
    assert result.progress.counts["calls"] == 0
    assert result.progress.counts["replayed"] > 50


def test_the_lock_of_a_living_driver_is_respected(bucket: str) -> None:
    folder, other = RemoteFolder(f"{bucket}/lock"), RemoteFolder(f"{bucket}/lock")
    folder.make()
    with folder.locked(), pytest.raises(RunRefused, match="another process"), other.locked():
        pytest.fail("two drivers hold one run")
    with other.locked():
        assert other.read_json("lock.json")


def test_a_worker_on_another_machine_appends_to_a_mirror_that_begins_empty(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path / "elsewhere"))
    folder = RemoteFolder(f"{bucket}/mirror")
    assert folder.append("calls/00001-w0.calls", b"one", 0) == 0
    assert folder.append("calls/00001-w0.calls", b"two", 1) == 3
    assert sorted(folder.names("calls", ".calls")) == ["calls/00001-w0-000000.calls", "calls/00001-w0-000001.calls"]
    assert folder.read("calls/00001-w0-000001.calls") == b"two"


def test_epochs_grow_and_missing_names_are_none(bucket: str) -> None:
    folder = RemoteFolder(f"{bucket}/epochs")
    folder.make()
    assert [folder.next_epoch() for _ in range(3)] == [1, 2, 3]
    assert folder.read("nothing") is None
    assert folder.names("parts", ".part") == []


def test_a_store_that_is_away_is_a_storage_error(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RemoteFolder("s3://no-such-bucket-here/run")
    with pytest.raises(StorageError, match="no-such-bucket-here"):
        folder.put("run.json", b"{}")
