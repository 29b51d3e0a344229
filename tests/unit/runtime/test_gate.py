"""How many calls may be in flight: the controller as a pure state machine, and the gate that obeys it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import Interrupted
from dialoom.runtime.gate import LONGEST_PAUSE_S, Control, Gate

TICK_S = 1e-6


def rounds(control: Control, capacity: int, n: int, start: float = 0.0) -> list[Control]:
    """The controller before an endpoint that answers ``capacity`` calls at once and refuses the rest.

    Every round sends all the calls that are allowed at once, and takes one second. Returns the state after each.
    """
    states = []
    for number in range(n):
        sent_at, n_sent = start + number, control.allowed
        now = sent_at + 1.0 - TICK_S
        for call in range(n_sent):
            fits = call < capacity
            control = control.succeeded(n_sent - call) if fits else control.refused(sent_at, now)
        states.append(control)
    return states


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("succeeded"), st.integers(1, 300)),
        st.tuples(st.just("refused"), st.floats(0, 5)),
        st.tuples(st.just("asked"), st.floats(0, 1e6)),
    ),
    max_size=200,
)


@given(ceiling=st.integers(1, 256), events=EVENTS)
def test_the_limit_stays_between_one_and_the_ceiling(ceiling: int, events: Iterable[tuple[str, float]]) -> None:
    control, now = Control(min(16.0, ceiling), ceiling), 0.0
    for what, figure in events:
        now += 0.1
        if what == "succeeded":
            control = control.succeeded(int(figure))
        else:
            age_s = figure if what == "refused" else 0.0
            control = control.refused(now - age_s, now, figure if what == "asked" else None)
        assert 1.0 <= control.limit <= ceiling
        assert 1 <= control.allowed <= ceiling
        assert control.paused_until <= now + LONGEST_PAUSE_S


@given(limit=st.floats(2, 256), n=st.integers(1, 100))
def test_refusals_of_one_round_cut_once(limit: float, n: int) -> None:
    control = Control(limit, 256)
    for i in range(n):
        control = control.refused(sent_at=0.0, now=1.0 + i / 1000)
    assert control.limit == max(1.0, limit / 2)


def test_a_refusal_of_a_call_sent_after_the_cut_cuts_again() -> None:
    control = Control(64.0, 64).refused(sent_at=0.0, now=1.0)
    assert control.refused(sent_at=1.5, now=2.0).limit == 16.0


@given(limit=st.floats(1, 64), ceiling=st.integers(64, 128))
def test_a_round_of_successes_adds_about_one_call(limit: float, ceiling: int) -> None:
    control = Control(limit, ceiling)
    after = rounds(control, capacity=10_000, n=1)[0]
    # Calls at the limit count, those behind it find room to spare.
    assert limit < after.limit <= limit + 1.0


def test_unused_room_is_no_reason_for_more() -> None:
    assert Control(16.0, 64).succeeded(in_flight=3) == Control(16.0, 64)


@given(ceiling=st.integers(2, 200))
def test_it_recovers_after_a_bad_hour(ceiling: int) -> None:
    control = rounds(Control(float(ceiling), ceiling), capacity=0, n=20)[-1]
    assert control.allowed == 1
    now = 100.0
    for _ in range(ceiling * ceiling):
        now += 1
        control = control.succeeded(control.allowed)
    assert control.allowed == ceiling


@given(capacity=st.integers(1, 48), first=st.integers(1, 128))
def test_it_settles_near_what_the_endpoint_takes(capacity: int, first: int) -> None:
    """Never far above, and on average above half: additive increase from a halved limit gives three quarters."""
    states = []
    control, now = Control(float(first), 128), 0.0
    for _ in range(6 * capacity + 200):
        # A call comes back as soon as it is answered and another one takes its place.
        n, now = control.allowed, now + 1.0
        over = n > capacity
        control = control.refused(now - 1.0, now - TICK_S) if over else control
        for _ in range(min(n, capacity)):
            control = control.succeeded(control.allowed)
        states.append(n)
    settled = states[len(states) // 2 :]
    assert max(settled) <= capacity + 2
    assert sum(min(n, capacity) for n in settled) / len(settled) >= 0.5 * capacity


def test_a_gate_never_lets_in_more_than_its_limit() -> None:
    most = 0

    async def call(gate: Gate) -> None:
        nonlocal most
        async with gate.call():
            most = max(most, gate.in_flight)
            await asyncio.sleep(0)

    async def run() -> None:
        gate = Gate(7)
        await asyncio.gather(*(call(gate) for _ in range(100)))
        assert gate.in_flight == 0

    asyncio.run(run())
    assert most == 7


def test_a_cancelled_caller_takes_no_room_with_it() -> None:
    async def run() -> None:
        gate = Gate(1)

        async def call() -> None:
            async with gate.call():
                await asyncio.sleep(0)

        async with gate.call():
            waiting = [asyncio.create_task(call()) for _ in range(5)]
            await asyncio.sleep(0)
            for task in waiting[::2]:
                task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert gate.in_flight == 0
        await asyncio.wait_for(call(), 1)

    asyncio.run(run())


def test_retry_after_holds_back_every_call() -> None:
    async def run() -> list[float]:
        gate = Gate(8, adaptive=True)
        began = time.monotonic()
        gate.refused(began, 0.2)
        times: list[float] = []

        async def call() -> None:
            async with gate.call() as let_in:
                times.append(let_in - began)

        await asyncio.gather(*(call() for _ in range(4)))
        return times

    assert min(asyncio.run(run())) >= 0.2


def test_a_longer_pause_holds_those_that_wait_already() -> None:
    async def run() -> float:
        gate = Gate(8, adaptive=True)
        began = time.monotonic()
        gate.refused(began, 0.05)

        async def call() -> float:
            async with gate.call() as let_in:
                return let_in - began

        task = asyncio.create_task(call())
        await asyncio.sleep(0.01)
        gate.refused(time.monotonic(), 0.2)
        return await task

    assert asyncio.run(run()) >= 0.2


def test_a_closed_gate_sends_away_who_waits_and_lets_the_others_end() -> None:
    async def run() -> list[object]:
        gate = Gate(1, adaptive=True)
        hold = asyncio.Event()

        async def call() -> str:
            async with gate.call():
                await hold.wait()
                return "answered"

        tasks = [asyncio.create_task(call()) for _ in range(3)]
        await asyncio.sleep(0)
        gate.close()
        hold.set()
        tasks.append(asyncio.create_task(call()))
        found: list[object] = await asyncio.gather(*tasks, return_exceptions=True)
        assert gate.in_flight == 0
        return found

    first, *rest = asyncio.run(run())
    assert first == "answered"
    assert [type(r) for r in rest] == [Interrupted] * 3


def test_closing_ends_a_pause_at_once() -> None:
    async def run() -> float:
        gate = Gate(8, adaptive=True)
        gate.refused(time.monotonic(), 50.0)

        async def call() -> None:
            async with gate.call():
                pytest.fail("a call was let in during the pause")

        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        began = time.monotonic()
        gate.close()
        with pytest.raises(Interrupted):
            await task
        return time.monotonic() - began

    assert asyncio.run(run()) < 5.0
