"""A scripted engine in an actor that is loaded only once a worker of the run has started."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dialoom.engine import EngineConfig
from dialoom.engines.scripted import ScriptedConfig, ScriptedEngine, ScriptedPlugin
from dialoom.errors import EngineRefused

LOOKS = 600


class LateConfig(ScriptedConfig, frozen=True):
    """``logs`` is the folder in which workers write their logs."""

    logs: Path


class LateEngine(ScriptedEngine):
    """Looks for a worker's log for half a minute."""

    def __init__(self, config: LateConfig, replica: int = 0) -> None:
        super().__init__(config, replica)
        self._logs = config.logs

    async def start(self) -> None:
        for _ in range(LOOKS):
            if any(self._logs.glob("w0-*.jsonl")):
                return await super().start()
            await asyncio.sleep(0.05)
        raise EngineRefused("no worker started while the engine was loading")


class LatePlugin(ScriptedPlugin):
    """The plug-in."""

    name = "late"
    config: type[EngineConfig] = LateConfig

    def hosted(self, config: Any) -> bool:
        return True

    def create(self, config: Any, *, replica: int) -> LateEngine:
        return LateEngine(config, replica)


PLUGIN = LatePlugin()
