"""Ray, started or joined: local by default, the cluster at ``RAY_ADDRESS`` otherwise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from dialoom.errors import EngineDown

OBJECT_STORE_BYTES = 256 << 20
"""Results never travel through Ray's object store, so a small one does."""


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """Ray for the time of a run. A local one ends with it. Raises EngineDown where it cannot start."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    import ray

    address = os.environ.get("RAY_ADDRESS")
    joined = ray.is_initialized()
    if not joined:
        try:
            if address:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="dialoom")
            else:
                ray.init(
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    namespace="dialoom",
                    object_store_memory=OBJECT_STORE_BYTES,
                )
        except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
            where = f"RAY_ADDRESS={address}" if address else "local Ray"
            raise EngineDown(f"Ray does not start: {error}", where=where, hint="Run 'dialoom doctor'.") from error
    try:
        yield
    finally:
        if not joined:
            ray.shutdown()
