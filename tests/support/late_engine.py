"""A scripted engine in an actor that is loaded only once a worker of the run has started."""

from __future__ import annotations

import asyncio
from typing import Any

import psutil

from dialoom.engines.scripted import ScriptedEngine, ScriptedPlugin
from dialoom.errors import EngineRefused

LOOKS = 600


class LateEngine(ScriptedEngine):
    """Looks for half a minute for a worker among the actors beside its own."""

    async def start(self) -> None:
        raylet = psutil.Process().parent()
        assert raylet is not None
        for _ in range(LOOKS):
            if any(" ".join(p.cmdline()).startswith("ray::Worker") for p in raylet.children()):
                return await super().start()
            await asyncio.sleep(0.05)
        raise EngineRefused("no worker started while the engine was loading")


class LatePlugin(ScriptedPlugin):
    """The plug-in."""

    name = "late"

    def hosted(self, config: Any) -> bool:
        return True

    def create(self, config: Any, *, replica: int) -> LateEngine:
        return LateEngine(config, replica)


PLUGIN = LatePlugin()
