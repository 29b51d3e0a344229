"""Fixtures of tests that run whole jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dialoom.runtime.cluster import cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """One Ray for all runs of a file; they join it."""
    with cluster():
        yield
