"""An engine without a model: it stands for a recorded one, and every answer comes from that run's call log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from dialoom.engine import EngineConfig, EngineIdentity, Request, Response
from dialoom.errors import JobError, NotRecorded
from dialoom.registry import did_you_mean
from dialoom.runtime.folder import open_folder
from dialoom.runtime.recorded import engine_entries


class ReplayConfig(EngineConfig, frozen=True):
    """Settings of the replay engine."""

    run: str
    """Folder of the run whose calls are replayed."""
    engine: str | None = None
    """Name of the engine in that run; not needed where it had one."""
    cell: str | None = None
    """Sweep cell of that run in which it had that name; not needed where all cells name the same engine so."""


class ReplayEngine:
    """Has the identity of the recorded engine, so that equal calls have equal digests. Answers nothing itself."""

    def __init__(self, config: ReplayConfig) -> None:
        self._run = config.run
        self.identity = recorded_identity(config)

    async def start(self) -> None:
        """Nothing to load."""

    async def generate(self, request: Request) -> Response:
        """Raises NotRecorded: the call log was asked before."""
        a = request.address
        raise NotRecorded(
            f"this call is not in the call log of {self._run}",
            where=f"{a.dialogue_id} turn {a.turn} call {a.call}",
            hint="Something that decides the prompt differs from the recorded run; use its engine for new calls.",
        )

    async def embed(self, texts: Sequence[str]) -> Response:
        """Raises NotRecorded: the call log was asked before."""
        hint = "The texts differ from those of the recorded run; use its engine for new calls."
        raise NotRecorded("vectors of these texts are not in the call log", where=self._run, hint=hint)

    async def close(self) -> None:
        """Nothing to free."""


def recorded_engines(run: str) -> dict[str, dict[str, Any]]:
    """Sweep cell to the identities of its engines, by name; the cell of a run without a sweep is "".

    Raises JobError where there is no run.
    """
    identity = (open_folder(run).read_json("run.json") or {}).get("identity")
    if not identity:
        raise JobError("there is no run here", where=run, hint="Name a run folder that holds run.json.")
    return {cell: own["engines"] for cell, own in (identity.get("cells") or {"": identity}).items()}


def recorded_identity(config: ReplayConfig) -> EngineIdentity:
    """Identity of the engine as the run recorded it. Raises JobError where there is no such run, cell or engine."""
    cells = recorded_engines(config.run)
    if config.cell is not None:
        if config.cell not in cells:
            hint = did_you_mean(config.cell, [c for c in cells if c])
            raise JobError(f"'{config.cell}' is no cell of the recorded run", where=config.run, hint=hint)
        cells = {config.cell: cells[config.cell]}
    names = list(dict.fromkeys(name for engines in cells.values() for name in engines))
    name = config.engine or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        hint = did_you_mean(config.engine or "", names)
        raise JobError(f"engine '{config.engine or ''}' is not one of the recorded run's", where=config.run, hint=hint)
    found = {cell: engines[name] for cell, engines in cells.items() if name in engines}
    identity = next(iter(found.values()))
    if any(other != identity for other in found.values()):
        hint = f"Give 'cell' too: {', '.join(found)}."
        raise JobError(f"engine '{name}' is not the same in all cells of the recorded run", where=config.run, hint=hint)
    return EngineIdentity(**identity)


class ReplayPlugin:
    """The plug-in."""

    name = "replay"
    config = ReplayConfig

    def hosted(self, config: ReplayConfig) -> bool:
        """In the workers."""
        return False

    def create(self, config: ReplayConfig, *, replica: int) -> ReplayEngine:
        """An engine that stands for the recorded one."""
        return ReplayEngine(config)

    def resources(self, config: ReplayConfig) -> dict[str, float]:
        """None."""
        return {}

    def replicas(self, config: ReplayConfig) -> int:
        """One."""
        return 1

    def in_flight(self, config: ReplayConfig) -> int:
        """Answers come at once; this many units keep a worker busy."""
        return config.concurrency or 64

    def sources(self, config: ReplayConfig) -> list[str]:
        """Run folders whose call logs the workers read: the run's own, and those it had answers from itself."""
        found: dict[str, None] = {}
        waiting = [config.run]
        while waiting:
            run = waiting.pop()
            if run not in found:
                found[run] = None
                waiting += _answered_from(run)
        return list(found)


def _answered_from(run: str) -> list[str]:
    """Runs whose recorded calls answered some of this run's."""
    folder = open_folder(run)
    job = yaml.safe_load(folder.read("job.yaml") or b"{}") or {}
    replayed = [e["run"] for e in engine_entries(folder).values() if e.get("use") == "replay"]
    return [*((job.get("run") or {}).get("reuse") or ()), *replayed]


PLUGIN = ReplayPlugin()
