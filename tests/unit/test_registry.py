"""Plug-ins by name, entry point and import path."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest

from dialoom import registry
from dialoom.errors import JobError


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_built_in_name_is_found_and_is_a_plugin(kind: str) -> None:
    for name in registry.names(kind):
        assert registry.find(kind, name) is importlib.import_module(f"dialoom.{kind}.{name}").PLUGIN


def test_names_are_the_public_modules() -> None:
    names = registry.names("engines")
    assert {"openai", "scripted"} <= set(names)
    assert names == sorted(n for n in names if not n.startswith("_"))


def test_helper_modules_and_packages_are_no_plugins() -> None:
    assert "compat" not in registry.names("metrics")
    with pytest.raises(JobError, match="no metric is named 'compat'"):
        registry.find("metrics", "compat")
    with pytest.raises(JobError, match="no engine is named '_script'"):
        registry.find("engines", "_script")


def test_import_paths() -> None:
    assert registry.find("methods", "support.tiny_method:PLUGIN").name == "tiny"


def entry_point(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Install a distribution whose entry point ``mine`` of kind ``engines`` is ``entry_module:PLUGIN``."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dialoom.engines]\nmine = entry_module:PLUGIN\n")
    (folder / "entry_module.py").write_text(module)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(importlib.import_module("sys").modules, "entry_module", raising=False)


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(tmp_path, monkeypatch, "PLUGIN = 'mine'\n")
    assert registry.find("engines", "mine") == "mine"
    assert "mine" in registry.names("engines")


def test_an_entry_point_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(tmp_path, monkeypatch, "raise KeyError('broken on purpose')\n")
    with pytest.raises(JobError, match=r"cannot import 'mine = entry_module:PLUGIN': KeyError: 'broken on purpose'"):
        registry.find("engines", "mine")


def test_did_you_mean() -> None:
    assert registry.did_you_mean("vlm", ["openai", "vllm"]) == "Did you mean 'vllm'? Allowed: openai, vllm."
    assert registry.did_you_mean("zzz", ["openai", "vllm"]) == "Allowed: openai, vllm."
    assert registry.did_you_mean("zzz", []) == ""


def test_entry_points_are_read_once_for_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(tmp_path, monkeypatch, "PLUGIN = 'mine'\n")
    registry.find("engines", "mine")
    started = time.perf_counter()
    for _ in range(100):
        registry.find("engines", "mine")
    assert time.perf_counter() - started < 0.1  # reading them takes milliseconds each time
    monkeypatch.setattr("sys.path", [p for p in importlib.import_module("sys").path if p != str(tmp_path)])
    with pytest.raises(JobError, match="no engine is named 'mine'"):
        registry.find("engines", "mine")
