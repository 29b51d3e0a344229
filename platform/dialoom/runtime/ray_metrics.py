"""The run's live figures as Ray metrics, for the dashboards of a cluster (Prometheus, Grafana)."""

from __future__ import annotations

from typing import Any

from dialoom.runtime.progress import Progress


class RayMetrics:
    """Sets one gauge a live figure, named ``dialoom_<figure>`` and tagged with the run's name."""

    def __init__(self, run: str) -> None:
        self._tags = {"run": run}
        self._gauges: dict[str, Any] = {}

    def __call__(self, progress: Progress) -> None:
        """Publish the figures of ``progress``."""
        from ray.util.metrics import Gauge

        for name, value in progress.metrics().items():
            gauge = self._gauges.get(name)
            if gauge is None:
                key = "dialoom_" + name.removeprefix("live/")
                gauge = self._gauges[name] = Gauge(key, description=name, tag_keys=("run",))
            gauge.set(value, tags=self._tags)
