"""What the vllm engine decides before vLLM is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom import errors
from dialoom.engine import EnginePlugin
from dialoom.engines._vllm_setup import cpu_share, folder_revision, installed, replica_gpus
from dialoom.engines.vllm import PLUGIN, VLLMConfig, engine_arguments
from dialoom.registry import find


def test_plugin_satisfies_the_protocol() -> None:
    plugin: EnginePlugin = PLUGIN
    assert find("engines", "vllm") is plugin
    assert plugin.hosted(VLLMConfig())
    assert plugin.replicas(VLLMConfig(replicas=4)) == 4
    assert plugin.in_flight(VLLMConfig(max_num_seqs=256)) == 288
    assert plugin.in_flight(VLLMConfig(max_num_seqs=1)) == 3
    assert plugin.in_flight(VLLMConfig(max_num_seqs=8, concurrency=5)) == 5


@pytest.mark.parametrize(
    ("tensor", "pipeline", "build", "own", "gpus"),
    [
        (1, 1, "gpu", False, 1.0),
        (4, 1, "gpu", False, 4.0),
        (2, 3, "gpu", False, 6.0),
        (2, 3, "gpu", True, 0.0),
        (2, 1, "", False, 2.0),
        (2, 1, "cpu", False, 0.0),
    ],
)
def test_gpus_of_a_replica(tensor: int, pipeline: int, build: Any, own: bool, gpus: float) -> None:
    assert replica_gpus(tensor, pipeline, build, own_placement=own) == gpus


@pytest.fixture
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialoom.engines.vllm.installed", lambda: ("gpu", "0.32.0"))


@pytest.mark.usefixtures("gpu_build")
@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({}, 1.0),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, 4.0),
        ({"num_gpus": 0.5}, 0.5),
        ({"tensor_parallel": 8, "engine_args": {"distributed_executor_backend": "ray"}}, 0.0),
    ],
)
def test_resources_on_gpus(fields: dict[str, Any], gpus: float) -> None:
    assert PLUGIN.resources(VLLMConfig(**fields)) == {"num_cpus": 0.0, "num_gpus": gpus}
    assert PLUGIN.in_flight(VLLMConfig(**fields)) == 288


def test_the_default_model_on_the_cpu_build() -> None:
    made = engine_arguments(VLLMConfig(), "/cache/model", "r1", cpu=True)
    assert made["model"] == "/cache/model"
    assert made["enforce_eager"] is True
    assert made["enable_prefix_caching"] is True
    assert made["kv_cache_memory_bytes"] == 2 * 2**30
    assert made["enable_chunked_prefill"] is False
    assert "gpu_memory_utilization" not in made
    assert "revision" not in made


def test_a_hub_model_on_gpus() -> None:
    config = VLLMConfig(
        model="Qwen/Qwen3-8B",
        tensor_parallel=2,
        max_model_len=4096,
        reasoning_parser="qwen3",
        engine_args={"quantization": "fp8", "max_num_seqs": 99},
    )
    made = engine_arguments(config, config.model, "abc123", cpu=False)
    assert made["revision"] == made["tokenizer_revision"] == "abc123"
    assert made["tensor_parallel_size"] == 2
    assert made["max_model_len"] == 4096
    assert made["gpu_memory_utilization"] == 0.9
    assert made["enforce_eager"] is False
    assert made["quantization"] == "fp8"
    assert made["max_num_seqs"] == 99
    assert made["reasoning_parser"] == "qwen3"
    assert not {"kv_cache_memory_bytes", "enable_chunked_prefill", "block_size"} & set(made)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=64, unique=True), st.integers(1, 8))
def test_replicas_share_the_cores_of_a_machine(cores: list[int], replicas: int) -> None:
    shares = [cpu_share(cores, r, replicas) for r in range(replicas)]
    if replicas == 1 or len(cores) < replicas:
        assert set(shares) == {""}
        return
    taken = [int(c) for share in shares for c in share.split(",")]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(cores)
    assert len({share.count(",") for share in shares}) == 1


def model_folder(path: Path, weights: bytes = b"w" * 100_000) -> Path:
    path.mkdir()
    (path / "config.json").write_text('{"max_position_embeddings": 128}')
    (path / "model.safetensors").write_bytes(weights)
    (path / "README.md").write_text("about")
    return path


def test_a_folders_revision_follows_its_content(tmp_path: Path) -> None:
    one = model_folder(tmp_path / "a")
    first = folder_revision(one)
    assert first == folder_revision(model_folder(tmp_path / "b"))
    (one / "README.md").write_text("other words")
    assert folder_revision(one) == first
    (one / "config.json").write_text("{}")
    assert folder_revision(one) != first


@given(st.integers(0, 4_000_000 - 16_384))
def test_a_fine_tune_of_the_same_shape_has_another_revision(where: int) -> None:
    """A change of 16 KB or more anywhere in four megabytes is seen: samples are at most that far apart."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        one = model_folder(Path(folder) / "m", bytes(4_000_000))
        before = folder_revision(one)
        with (one / "model.safetensors").open("r+b") as weights:
            weights.seek(where)
            weights.write(b"x" * 16_384)
        assert folder_revision(one) != before


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRefused, match=r"no config\.json"):
        folder_revision(tmp_path)
    with pytest.raises(errors.EngineRefused, match="No such file"):
        _ = PLUGIN.create(VLLMConfig(model=str(tmp_path / "none")), replica=0).identity


def test_identity_holds_what_shapes_answers_and_nothing_else(tmp_path: Path) -> None:
    folder = str(model_folder(tmp_path / "m"))
    plain = PLUGIN.create(VLLMConfig(model=folder), replica=0).identity
    assert plain.model == "m"
    assert plain.version == installed()[1]
    same = VLLMConfig(model=folder, replicas=3, tensor_parallel=2, max_num_seqs=3, kv_cache_gib=1, concurrency=2)
    assert PLUGIN.create(same, replica=2).identity == plain
    other = VLLMConfig(model=folder, chat_template_kwargs={"enable_thinking": False})
    assert PLUGIN.create(other, replica=0).identity != plain


def test_the_module_is_light() -> None:
    heavy = {"vllm", "torch", "transformers", "openai", "ray", "huggingface_hub"}
    code = (
        "import sys, dialoom.engines.vllm, dialoom.engines.openai, dialoom.engines.scripted;"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor_paralel"):
        VLLMConfig.model_validate({"tensor_paralel": 2})
