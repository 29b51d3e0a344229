"""The job's own limits: tokens, money, time, errors, standstill. Checked by the driver a few times a second."""

from __future__ import annotations

from dialoom.errors import DialoomError, LimitReached
from dialoom.job import LimitConfig
from dialoom.outcome import Outcome
from dialoom.runtime.ending import Ending
from dialoom.runtime.progress import Progress

ERRORS_COUNT_FROM = 20
"""Units after which the share of errors says something."""


class Limits:
    """Watches one session through its stages; ``reached`` gives the ending and the reason as soon as a limit is met."""

    def __init__(self, limits: LimitConfig) -> None:
        self._limits = limits
        self._earlier = Progress()
        self._earlier_gpu_usd = 0.0
        self._first_lease_at = float("inf")
        self._moved_at = 0.0
        self._last: tuple[float, ...] = ()

    def begin(self, now: float) -> None:
        """The engines are there (monotonic seconds): from now on something has to happen."""
        self._moved_at = now

    def leased(self, now: float) -> None:
        """Units were handed out, which is progress; the first time starts the session's clock."""
        self._first_lease_at = min(self._first_lease_at, now)
        self._moved_at = now

    def end_stage(self, progress: Progress, gpu_usd: float = 0.0) -> None:
        """A stage is over: what it did and paid counts in those after it."""
        self._earlier.done += progress.done
        self._earlier.outcomes.update(progress.outcomes)
        self._earlier.counts.update(progress.counts)
        self._earlier_gpu_usd += gpu_usd

    def reached(self, progress: Progress, now: float, gpu_usd: float = 0.0) -> tuple[Ending, DialoomError] | None:
        """The first limit that the session meets at ``now``, or None. ``progress`` and ``gpu_usd`` are this stage's."""
        return self.spent(progress, now, gpu_usd) or self._errors(progress) or self._standstill(progress, now)

    def spent(self, progress: Progress, now: float, gpu_usd: float = 0.0) -> tuple[Ending, DialoomError] | None:
        """The first budget that is used up; engines that are still loading may use it up too."""
        limits, counts = self._limits, self._earlier.counts + progress.counts
        tokens = counts["prompt_tokens"] + counts["output_tokens"]
        if limits.tokens is not None and tokens >= limits.tokens:
            return self._limit(f"limits.tokens: {tokens:,} of {limits.tokens:,} tokens are spent")
        cost_usd = counts["cost_usd"] + self._earlier_gpu_usd + gpu_usd
        if limits.cost_usd is not None and cost_usd >= limits.cost_usd:
            return self._limit(f"limits.cost_usd: ${cost_usd:.4f} of ${limits.cost_usd:g} are spent")
        if limits.wall_s is not None and now - self._first_lease_at >= limits.wall_s:
            return self._limit(f"limits.wall_s: {limits.wall_s:g} s are over")
        return None

    def _limit(self, what: str) -> tuple[Ending, DialoomError]:
        return Ending.LIMIT, LimitReached(what, hint="Raise it and run the same command again to go on.", scope="job")

    def _errors(self, progress: Progress) -> tuple[Ending, DialoomError] | None:
        allowed, done = self._limits.error_share, self._earlier.done + progress.done
        failed = self._earlier.outcomes[Outcome.INFRASTRUCTURE] + progress.outcomes[Outcome.INFRASTRUCTURE]
        if allowed is None or done < ERRORS_COUNT_FROM or failed / done <= allowed:
            return None
        return self._limit(f"limits.error_share: {failed} of {done} units failed ({progress.last_error})")

    def _standstill(self, progress: Progress, now: float) -> tuple[Ending, DialoomError] | None:
        state = (progress.counts["calls"], progress.counts["replayed"], progress.done)
        if state != self._last:
            self._last, self._moved_at = state, now
        if now - self._moved_at < self._limits.stall_s:
            return None
        why = progress.trouble or progress.last_error or f"{progress.running} units wait for an answer"
        error = LimitReached(
            f"no call and no unit was finished for {self._limits.stall_s:g} s: {why}",
            hint="See the engine's log. limits.stall_s sets the time; the same command goes on.",
            scope="job",
        )
        return Ending.STALLED, error
