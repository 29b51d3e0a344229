"""What the folder layout must not do."""

from __future__ import annotations

import subprocess
import sys

from support.shared import ROOT


def test_the_source_root_does_not_shadow_the_standard_library() -> None:
    """``platform/`` as a package would hide the standard library's ``platform`` from Python run in this folder."""
    assert not (ROOT / "platform" / "__init__.py").exists()
    words = [sys.executable, "-c", "import platform; print(platform.python_version())"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == sys.version.split()[0]
