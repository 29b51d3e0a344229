"""An engine without a model: it stands for a recorded one, and every answer comes from that run's call log."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from dialoom.engine import EngineConfig, EngineIdentity, Request, Response
from dialoom.errors import JobError, NotRecorded
from dialoom.registry import did_you_mean
from dialoom.runtime.folder import open_folder


class ReplayConfig(EngineConfig, frozen=True):
    """Settings of the replay engine."""

    run: str
    """Folder of the run whose calls are replayed."""
    engine: str | None = None
    """Name of the engine in that run; not needed where it had one."""


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


def recorded_identity(config: ReplayConfig) -> EngineIdentity:
    """Identity of the engine as the run recorded it. Raises JobError where there is no such run or engine."""
    record = open_folder(config.run).read_json("run.json")
    if record is None:
        raise JobError("there is no run here", where=config.run, hint="Name a run folder that holds run.json.")
    engines = record["identity"]["engines"]
    name = config.engine or (next(iter(engines)) if len(engines) == 1 else None)
    if name is None or name not in engines:
        hint = did_you_mean(config.engine or "", list(engines))
        raise JobError(f"engine '{config.engine or ''}' is not one of the recorded run's", where=config.run, hint=hint)
    return EngineIdentity(**engines[name])


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
    job = yaml.safe_load(open_folder(run).read("job.yaml") or b"{}") or {}
    replayed = [e["run"] for e in (job.get("engines") or {}).values() if e.get("use") == "replay"]
    return [*((job.get("run") or {}).get("reuse") or ()), *replayed]


PLUGIN = ReplayPlugin()
