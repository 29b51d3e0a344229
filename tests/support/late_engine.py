"""A scripted engine in an actor that is loaded only once a worker of the run has started."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psutil

from dialoom.engines.scripted import ScriptedEngine, ScriptedPlugin
from dialoom.errors import EngineRefused

LOOKS = 600
STAYS = 20


class LateEngine(ScriptedEngine):
    """Looks for half a minute for a worker among the actors beside its own."""

    async def start(self) -> None:
        raylet = psutil.Process().parent()
        assert raylet is not None
        seen: Counter[psutil.Process] = Counter()
        for _ in range(LOOKS):
            seen.update(filter(_is_worker, raylet.children()))
            if any(looks >= STAYS for looks in seen.values()):  # one of an earlier run is gone by then
                return await super().start()
            await asyncio.sleep(0.05)
        raise EngineRefused("no worker started while the engine was loading")


def _is_worker(process: psutil.Process) -> bool:
    try:
        return " ".join(process.cmdline()).startswith("ray::Worker")
    except psutil.Error:
        return False


class LatePlugin(ScriptedPlugin):
    """The plug-in."""

    name = "late"

    def hosted(self, config: Any) -> bool:
        return True

    def create(self, config: Any, *, replica: int) -> LateEngine:
        return LateEngine(config, replica)


PLUGIN = LatePlugin()
