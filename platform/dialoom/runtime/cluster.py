"""Ray, started or joined: local by default, the cluster at ``RAY_ADDRESS`` otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from dialoom.errors import DialoomError, EngineDown

log = logging.getLogger(__name__)

RAY_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_health_check_timeout_ms": "30000",
    "RAY_worker_niceness": "0",
    "RAY_raylet_client_connect_timeout_milliseconds": "50",
    "RAY_raylet_client_num_connect_attempts": "400",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
}
"""Quiet, patient with a busy machine, and no lower priority for actors, who do the work. Ray's processes look for each
other twenty times a second for 20 s, not every second for ten: a second less of every start. Its agent looks at every
process of the machine once a minute, not every five seconds. The environment goes first."""
STARTS = 3
"""Tries to start a local Ray: it gives its processes half a minute, too little on a busy machine."""
_RAY_DIED = ("LocalRayletDiedError", "RaySystemError")
KNOCK_S = 10.0
LOOK_S = 2.0
"""How often a wait that takes its time is looked at."""
OBJECT_STORE_BYTES = 256 << 20
"""Results never travel through Ray's object store, so a small one does."""


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """Ray for the time of a run. A local one ends with it. Raises EngineDown where it cannot start."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    joined = ray.is_initialized()
    if not joined:
        _start()
    try:
        yield
    finally:
        if not joined:
            ray.shutdown()


def _start() -> None:
    import ray

    address = os.environ.get("RAY_ADDRESS")
    if address:
        _knock(address)
    for attempt in range(1 if address else STARTS):
        try:
            if address:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="dialoom")
            else:
                with own_paths():
                    ray.init(
                        address="local",  # without it Ray joins whatever cluster was last started on this machine
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level="ERROR",
                        namespace="dialoom",
                        object_store_memory=OBJECT_STORE_BYTES,
                    )
            return
        except Exception as error:  # Ray raises bare exceptions where its processes are late or die
            ray.shutdown()
            if attempt == STARTS - 1 or address:
                where = f"RAY_ADDRESS={address}" if address else "local Ray"
                hint = "Try again if the machine was busy; else run 'dialoom doctor'."
                raise EngineDown(f"Ray does not start: {error}", where=where, hint=hint) from error
            log.warning("Ray did not start, trying again: %s", error)


def own_raylet() -> psutil.Process | None:
    """Ray's process of this machine, where this process started it. Ray does not always say that it has ended."""
    try:
        return next((p for p in psutil.Process().children() if p.name() == "raylet"), None)
    except psutil.Error:
        return None


def has_ended(process: psutil.Process) -> bool:
    """Whether a child of this process has ended."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def unless_lost(raylet: psutil.Process | None, answer: Awaitable[Any]) -> Any:
    """What Ray answers. Raises RayError where it does not, and also where its own process here has ended meanwhile."""
    from ray.exceptions import LocalRayletDiedError

    asked = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait([asked], timeout=LOOK_S))[0]:
            if raylet is not None and has_ended(raylet):
                raise LocalRayletDiedError
        return await asked
    finally:
        asked.cancel()


async def within(timeout_s: float, answer: Any) -> Any:
    """What an actor answers. Raises RayError where it is lost, or silent for ``timeout_s`` seconds."""
    from ray.exceptions import GetTimeoutError

    try:
        return await asyncio.wait_for(answer, timeout_s)
    except TimeoutError:
        raise GetTimeoutError(f"no answer for {timeout_s:.0f} s") from None


async def until(event: asyncio.Event, work: Coroutine[Any, Any, Any]) -> Any:
    """What ``work`` comes to; None where ``event`` is set before that."""
    task = asyncio.create_task(work)
    stop = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        stop.cancel()
        task.cancel()


def _knock(address: str) -> None:
    """Raises EngineDown where nobody listens at ``host:port``: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()
    except (OSError, OverflowError) as error:
        hint = "Start a cluster there ('ray start --head'), or unset RAY_ADDRESS for a Ray of its own on this machine."
        raise EngineDown(f"no Ray cluster answers: {error}", where=f"RAY_ADDRESS={address}", hint=hint) from error


@contextlib.contextmanager
def own_paths() -> Iterator[None]:
    """Let the processes started now find modules wherever this one does: plug-ins need not be installed."""
    before = os.environ.get("PYTHONPATH")
    own = [str(Path(p).absolute()) for p in sys.path if not p.startswith((sys.prefix, sys.base_prefix))]
    os.environ["PYTHONPATH"] = os.pathsep.join(own)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def lacking(resources: Mapping[str, float]) -> str:
    """What no node of the cluster has enough of for one replica; "" where one is large enough, if busy."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, in_ray in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        needed, largest = resources.get(name, 0.0), max((n.get(in_ray, 0.0) for n in nodes), default=0.0)
        if needed > largest:
            return f"waits for a node with {needed:g} {name}, the largest has {largest:g}"
    return ""


def own_process_group() -> None:
    """Take an actor and its children out of the terminal's process group: Ctrl-C drains through the driver alone."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def cause_of(error: Exception) -> Exception:
    """The error an actor's method raised, without Ray's wrapping; any other error as it is."""
    from ray.exceptions import RayTaskError

    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error


def as_own(error: Exception) -> DialoomError:
    """An error that Ray raised, as one that says what to do; an error of dialoom's as it is."""
    cause = cause_of(error)
    if isinstance(cause, DialoomError):
        return cause
    if type(error).__name__ in _RAY_DIED:
        what = "Ray's own process on this machine ended"
        return DialoomError(what, hint="Memory is the usual reason. Run the same command again to go on.")
    return DialoomError(first_line(error), hint="See log.jsonl and logs/ in the run folder.")


def first_line(error: Exception) -> str:
    """An error in one line, Ray's own decoration left out."""
    cause = cause_of(error)
    text = str(cause).strip().split("\n")[0][:300]
    return text if isinstance(cause, DialoomError) else f"{type(cause).__name__}: {text}"
