"""The public data that the tests check against, kept outside the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shared_path(*parts: str) -> Path:
    """A path below ``$DIALOOM_SHARED/data`` (default ``../shared/data``).

    Skips the test where it is absent, with the reason; fails it where ``DIALOOM_REQUIRE_SHARED=1``.
    """
    base = Path(os.environ.get("DIALOOM_SHARED") or ROOT.parent / "shared") / "data"
    path = base.joinpath(*parts)
    if not path.exists():
        reason = f"public data not found at {path}; set DIALOOM_SHARED to the folder that holds data/"
        if os.environ.get("DIALOOM_REQUIRE_SHARED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path
