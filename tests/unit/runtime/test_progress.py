"""Figures of a run under way."""

from __future__ import annotations

import pytest

from dialoom.runtime.progress import RATE_WINDOW_S, Progress


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    return made


def test_rates_are_those_of_the_last_seconds(clock: Clock) -> None:
    progress = Progress(started=0.0)
    for second in range(100):
        clock.now = float(second)
        fast = second > 60
        progress.done += 4 if fast else 1
        progress.add(
            {"calls": 8 if fast else 2, "replayed": 2 if fast else 0, "prompt_tokens": 30, "output_tokens": 10}
        )
        progress.sample()
    assert progress.rates() == pytest.approx((4.0, 10.0, 40.0))
    assert clock.now - RATE_WINDOW_S > 60


def test_no_rates_before_there_is_something_to_compare(clock: Clock) -> None:
    progress = Progress(started=0.0)
    assert progress.rates() == (0.0, 0.0, 0.0)
    progress.sample()
    assert progress.rates() == (0.0, 0.0, 0.0)


def test_time_left(clock: Clock) -> None:
    progress = Progress(started=0.0)
    clock.now = 10.0
    assert progress.left_s() is None
    progress.total = 100
    assert progress.left_s() is None
    progress.done = 25
    assert progress.left_s() == pytest.approx(30.0)
    progress.done = 120
    assert progress.left_s() == 0.0


def test_shares_of_turns() -> None:
    progress = Progress()
    assert progress.share("corrected") == 0.0
    progress.add({"turns": 8, "corrected": 2})
    progress.add({"turns": 2, "fallback": 1})
    assert (progress.share("corrected"), progress.share("fallback"), progress.share("triggered")) == (0.2, 0.1, 0.0)


def test_live_metrics_are_numbers_under_one_heading() -> None:
    metrics = Progress().metrics()
    assert all(name.startswith("live/") for name in metrics)
    assert all(isinstance(value, float) for value in metrics.values())
