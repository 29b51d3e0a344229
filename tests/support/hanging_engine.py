"""The scripted engine whose first call of all is never answered; ``model`` names the file that marks it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dialoom.engine import Request, Response
from dialoom.engines.scripted import ScriptedConfig, ScriptedEngine, ScriptedPlugin


class HangingEngine(ScriptedEngine):
    """Answers as the scripted engine does, in every process but that of the first call."""

    _hangs = False

    async def generate(self, request: Request) -> Response:
        """Raises what the scripted engine raises, or waits for ever."""
        if self._hangs or _first(self.identity.model):
            self._hangs = True
            await asyncio.Event().wait()
        return await super().generate(request)


def _first(mark: str) -> bool:
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class HangingPlugin(ScriptedPlugin):
    """The plug-in."""

    name = "hanging"

    def create(self, config: Any, *, replica: int = 0) -> HangingEngine:
        """The engine."""
        assert isinstance(config, ScriptedConfig)
        return HangingEngine(config)


PLUGIN = HangingPlugin()
