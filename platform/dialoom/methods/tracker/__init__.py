"""The bounded dialogue-state tracker as a method (``use: tracker``)."""

from __future__ import annotations

from collections.abc import Mapping

from dialoom.method import MethodConfig
from dialoom.methods.tracker.config import TrackerConfig
from dialoom.methods.tracker.method import ROLE, Tracker, all_prompts
from dialoom.schema import Schema


class TrackerPlugin:
    """How the runtime makes trackers."""

    name = "tracker"
    config: type[MethodConfig] = TrackerConfig
    declares = frozenset({"state", "intent"})
    roles = (ROLE,)

    def create(self, config: TrackerConfig, schema: Schema) -> Tracker:
        """A tracker for ``schema``. Raises JobError for an unknown protocol."""
        return Tracker(config, schema)

    def prompts(self, config: TrackerConfig) -> Mapping[str, str]:
        """Every prompt text by file name."""
        return all_prompts(config.protocol)


PLUGIN = TrackerPlugin()
