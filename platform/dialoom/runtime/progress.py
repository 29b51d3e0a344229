"""What a run has done so far, added up for the progress line, the log and the tracking server."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dialoom.outcome import Outcome

RATE_WINDOW_S = 15.0


@dataclass
class Progress:
    """Figures of the run under way. ``total`` is None while the input is still being read."""

    total: int | None = None
    skipped: int = 0
    done: int = 0
    running: int = 0
    workers: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    phase: str = "starting"
    trouble: str = ""
    last_error: str = ""
    started: float = field(default_factory=time.monotonic)
    _samples: deque[tuple[float, int, float, float]] = field(default_factory=lambda: deque(maxlen=400))

    def add(self, counts: Mapping[str, float]) -> None:
        """Take in a worker's counts."""
        for name, value in counts.items():
            self.counts[name] += value  # type: ignore[assignment]

    def sample(self) -> None:
        """Remember where things stand now, for the rates."""
        now = time.monotonic()
        tokens = self.counts["prompt_tokens"] + self.counts["output_tokens"]
        self._samples.append((now, self.done, self.counts["calls"] + self.counts["replayed"], tokens))
        while self._samples and now - self._samples[0][0] > RATE_WINDOW_S:
            self._samples.popleft()

    def rates(self) -> tuple[float, float, float]:
        """Units, calls and tokens a second over the last seconds."""
        if len(self._samples) < 2:
            return 0.0, 0.0, 0.0
        (t0, d0, c0, k0), (t1, d1, c1, k1) = self._samples[0], self._samples[-1]
        span = max(t1 - t0, 1e-9)
        return (d1 - d0) / span, (c1 - c0) / span, (k1 - k0) / span

    def share(self, name: str) -> float:
        """``corrected``, ``fallback`` or ``triggered`` turns as a share of all turns."""
        return self.counts[name] / self.counts["turns"] if self.counts["turns"] else 0.0

    def left_s(self) -> float | None:
        """Seconds to go at the mean rate so far, or None where that cannot be said."""
        elapsed = time.monotonic() - self.started
        if self.total is None or not self.done:
            return None
        return max(0.0, (self.total - self.done) * elapsed / self.done)

    def metrics(self) -> dict[str, float]:
        """The live figures that go to the tracking server."""
        units_per_s, calls_per_s, tokens_per_s = self.rates()
        return {
            "live/units_done": float(self.done),
            "live/units_per_s": units_per_s,
            "live/calls_per_s": calls_per_s,
            "live/tokens_per_s": tokens_per_s,
            "live/prompt_tokens": float(self.counts["prompt_tokens"]),
            "live/output_tokens": float(self.counts["output_tokens"]),
            "live/trigger_rate": self.share("triggered"),
            "live/fallback_rate": self.share("fallback"),
            "live/retries": float(self.counts["retries"]),
        }


Observe = Callable[[Progress], None]
"""Is shown the progress about four times a second."""
