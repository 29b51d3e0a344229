"""Ray, started or joined: local by default, the cluster at ``RAY_ADDRESS`` otherwise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from dialoom.errors import DialoomError, EngineDown

PATIENCE_S = {"RAY_raylet_start_wait_time_s": 120, "RAY_health_check_timeout_ms": 30_000}
"""A busy machine is no dead one: how long Ray waits for its own processes. Values from the environment go first."""
OBJECT_STORE_BYTES = 256 << 20
"""Results never travel through Ray's object store, so a small one does."""


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """Ray for the time of a run. A local one ends with it. Raises EngineDown where it cannot start."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    for name, seconds in PATIENCE_S.items():
        os.environ.setdefault(name, str(seconds))
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
        except Exception as error:  # Ray raises bare exceptions where its processes are late or die
            ray.shutdown()
            where = f"RAY_ADDRESS={address}" if address else "local Ray"
            hint = "Try again if the machine was busy; else run 'dialoom doctor'."
            raise EngineDown(f"Ray does not start: {error}", where=where, hint=hint) from error
    try:
        yield
    finally:
        if not joined:
            ray.shutdown()


def own_process_group() -> None:
    """Take an actor and its children out of the terminal's process group: Ctrl-C drains through the driver alone."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def cause_of(error: Exception) -> Exception:
    """The error an actor's method raised, without Ray's wrapping; any other error as it is."""
    from ray.exceptions import RayTaskError

    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error


def first_line(error: Exception) -> str:
    """An error in one line, Ray's own decoration left out."""
    cause = cause_of(error)
    text = str(cause).strip().split("\n")[0][:300]
    return text if isinstance(cause, DialoomError) else f"{type(cause).__name__}: {text}"
