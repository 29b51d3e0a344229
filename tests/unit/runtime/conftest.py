"""What several tests of the runtime start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.runtime.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder with nothing in it yet."""
    made = RunFolder(tmp_path / "run")
    made.make()
    return made
