"""How long a run's engines are up, which their GPUs are paid for: one small file a session, written while it runs.

A file holds, for every engine, seconds of its replicas, of their GPUs, and what those cost at the session's price. A
session that is killed loses what came after its last write.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from dialoom.errors import StorageError
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import EngineSpec

log = logging.getLogger(__name__)

WRITE_S = 60.0
FOLDER = "engine_time"
FIGURES = ("replica_s", "gpu_s", "gpu_usd")

Times = Mapping[str, Mapping[str, float]]
"""Engine to its :data:`FIGURES`."""


class EngineTime:
    """The clock of one stage's engines: a replica counts from when it is asked for until it is closed.

    What earlier stages of the same session (``epoch``) wrote is kept. Raises StorageError where it cannot be read.
    """

    def __init__(
        self,
        folder: RunFolder,
        epoch: int,
        engines: Mapping[str, EngineSpec],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._folder = folder
        self._name = f"{FOLDER}/{epoch:05d}.json"
        self._engines = engines
        self._before: Times = folder.read_json(self._name) or {}
        self._up: dict[tuple[str, int], float] = {}
        self._ended: dict[tuple[str, int], float] = {}
        self._writing = threading.Lock()

    def asked(self, engine: str, replica: int) -> None:
        """A replica's host was asked for."""
        self._up[engine, replica] = self._clock()

    def closed(self, engine: str, replica: int) -> None:
        """A replica was closed; the first time counts."""
        if (engine, replica) in self._up:
            self._ended.setdefault((engine, replica), self._clock())

    def figures(self) -> dict[str, dict[str, float]]:
        """This stage's time so far, of all its engines; those that do not run here take none."""
        now = self._clock()
        found = {}
        for name, spec in self._engines.items():
            up_s = {key: self._ended.get(key, now) - asked for key, asked in self._up.items() if key[0] == name}
            replica_s = sum(up_s.values())
            gpu_s = replica_s * (float(spec.resources.get("num_gpus", 0)) or 1.0)
            gpu_usd = 0.0 if spec.price is None else gpu_s / 3600.0 * spec.price.gpu_hour
            found[name] = {"replica_s": replica_s, "gpu_s": gpu_s, "gpu_usd": gpu_usd}
        return found

    @property
    def gpu_usd(self) -> float:
        """What the GPUs of this stage cost so far."""
        return sum(figures["gpu_usd"] for figures in self.figures().values())

    def write(self) -> None:
        """Write the session's time so far. A failure is logged: the next write holds it too."""
        with self._writing:
            try:
                self._folder.put_json(self._name, added([self._before, self.figures()]))
            except StorageError as error:
                log.warning("the engines' time is not up to date: %s", error)

    async def keep_written(self) -> None:
        """Write every minute, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_S)
            await asyncio.to_thread(self.write)

    def end(self) -> None:
        """Nothing is up any more: close what was not closed, and write."""
        for key in self._up:
            self.closed(*key)
        self.write()


def engine_time(folder: RunFolder) -> dict[str, dict[str, float]]:
    """Time of all sessions of a run by engine. Raises StorageError."""
    return added(folder.read_json(name) or {} for name in folder.names(FOLDER, ".json"))


def added(times: Iterable[Times]) -> dict[str, dict[str, float]]:
    """Several sessions' or stages' times together."""
    total: dict[str, dict[str, float]] = {}
    for one in times:
        for name, figures in one.items():
            sums = total.setdefault(name, dict.fromkeys(FIGURES, 0.0))
            for figure in FIGURES:
                sums[figure] += float(figures.get(figure) or 0.0)
    return total
