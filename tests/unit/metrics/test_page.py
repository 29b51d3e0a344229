"""The page of metrics is what the definitions say today."""

from __future__ import annotations

from pathlib import Path

from dialoom.metrics._page import page


def test_the_page_is_up_to_date() -> None:
    written = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert written.read_text() == page(), "run: python -m dialoom.metrics._page docs/metrics.md"
