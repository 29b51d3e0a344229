"""The scripted engine in actors that take a whole processor each: with nodes of one processor, one replica a node."""

from __future__ import annotations

from typing import Any

from dialoom.engines.scripted import ScriptedPlugin


class PinnedPlugin(ScriptedPlugin):
    """The plug-in."""

    name = "pinned"

    def hosted(self, config: Any) -> bool:
        return True

    def resources(self, config: Any) -> dict[str, float]:
        return {"num_cpus": 1.0}


PLUGIN = PinnedPlugin()


class HugePlugin(PinnedPlugin):
    """Asks for more processors than there are."""

    def resources(self, config: Any) -> dict[str, float]:
        return {"num_cpus": 64.0}


HUGE = HugePlugin()
