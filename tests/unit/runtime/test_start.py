"""Engines that do not start at once: endpoints that are down, replicas in actors that fail to load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dialoom.engine import Address, Message, Request, Sampling
from dialoom.engines.openai import PLUGIN, OpenAIConfig
from dialoom.errors import EngineDown, EngineRefused
from dialoom.runtime import host
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.client import Answer, EngineClient, Pool
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.gate import Gate
from dialoom.runtime.host import EngineHost
from dialoom.runtime.replicas import RESTARTS, HostedReplica, LocalReplica, Replica
from support import clock
from support.http_server import Endpoint, Reply, completion, failure, in_turn, model_list

DOWN = [failure(502, "bad gateway"), failure(503, "loading"), Reply(fault="reset")]


def client(folder: Path, *endpoints: Endpoint, attempts: int = 3) -> EngineClient:
    """A client of one pool, not started: a replica an endpoint."""
    made = RunFolder(folder)
    made.make()
    config = OpenAIConfig(model="m", base_url=tuple(e.url for e in endpoints), api_key_env="")
    engines = [PLUGIN.create(config, replica=i) for i in range(len(endpoints))]
    replicas: list[Replica] = [LocalReplica(f"e/{i}", e, Gate(8)) for i, e in enumerate(engines)]
    pools = {"e": Pool(engines[0].identity, replicas)}
    return EngineClient(pools, CallLog(made, "s"), max_attempts=attempts, backoff_s=0.0, seed=0)


async def ask(by: EngineClient, text: str) -> Answer:
    request = Request((Message("user", text),), Sampling(), Address(text, 0, 0))
    return await by.call("e", request, [by.digests.message(m) for m in request.messages])


def with_client(made: EngineClient, work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            await work()
        finally:
            await made.close()

    asyncio.run(run())


@pytest.mark.parametrize("down", DOWN)
def test_an_endpoint_that_is_down_at_the_start_gets_no_calls_until_it_is_needed(tmp_path: Path, down: Reply) -> None:
    with Endpoint(completion("late"), models=down) as late, Endpoint(completion("good")) as good:
        made = client(tmp_path, late, good)

        async def work() -> None:
            await made.start()
            assert {(await ask(made, f"text {i}")).response.text for i in range(6)} == {"good"}
            assert len(late.seen) == 1
            late.models = in_turn([model_list("m")])
            good.answer = in_turn([Reply(fault="reset")])
            assert (await ask(made, "once more")).response.text == "late"

        with_client(made, work)


def test_an_endpoint_that_stays_down_is_asked_once_for_all_calls_that_wait(tmp_path: Path) -> None:
    with Endpoint(models=failure(502, "bad gateway")) as bad, Endpoint(completion("good")) as good:
        made = client(tmp_path, bad, good, attempts=1)

        async def work() -> None:
            await made.start()
            asked = len(bad.seen)
            good.answer = in_turn([Reply(fault="reset")])
            with pytest.raises(EngineDown):
                await ask(made, "first")
            found = await asyncio.gather(*(ask(made, f"text {i}") for i in range(6)), return_exceptions=True)
            assert {type(f) for f in found} == {EngineDown}
            assert len(bad.seen) == asked + 1
            assert not bad.calls()

        with_client(made, work)


def test_an_engine_none_of_whose_endpoints_is_up_is_tried_as_often_as_a_call(tmp_path: Path) -> None:
    with Endpoint(models=failure(502, "bad gateway")) as one, Endpoint(models=failure(502, "bad gateway")) as two:
        made = client(tmp_path, one, two)
        with pytest.raises(EngineDown, match="bad gateway"):
            with_client(made, made.start)
        assert [len(one.seen), len(two.seen)] == [3, 3]


def test_an_endpoint_that_comes_up_in_time_is_an_endpoint(tmp_path: Path) -> None:
    with Endpoint(models=in_turn([failure(503, "loading"), failure(503, "loading"), model_list("m")])) as endpoint:
        made = client(tmp_path, endpoint)

        async def work() -> None:
            await made.start()
            await ask(made, "hello")

        with_client(made, work)
        assert len(endpoint.calls()) == 1
        assert made.counts.retries == 0


def test_a_key_that_one_endpoint_does_not_take_is_told_at_once(tmp_path: Path) -> None:
    with Endpoint(models=failure(401, "bad key")) as one, Endpoint() as two:
        made = client(tmp_path, one, two)
        with pytest.raises(EngineRefused, match="401"):
            with_client(made, made.start)
        assert len(one.seen) == 1


class Actor:
    """What Ray makes of a host, in this process: errors come wrapped. Notes when it was asked to start."""

    def __init__(self, made: EngineHost, before: Callable[[int], None]) -> None:
        self.asked_at: list[float] = []
        self.ready = self
        self._host = made
        self._before = before

    async def remote(self) -> dict[str, Any]:
        from ray.exceptions import RayTaskError

        self._before(len(self.asked_at))
        self.asked_at.append(asyncio.get_running_loop().time())
        try:
            return await self._host.ready()
        except Exception as error:
            raise RayTaskError("ready", "traceback", error) from error


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the script of the hosted engine is looked for."""
    monkeypatch.setattr(host, "own_process_group", lambda: None)
    return tmp_path / "answers.jsonl"


def write(answers: Path) -> None:
    answers.write_text('{"dialogue_id": "d", "turn": 0, "answers": ["a"]}\n')


def write_nothing(answers: Path) -> None:
    answers.write_text("no JSON\n")


def scripted(answers: Path) -> EngineHost:
    return EngineHost("scripted", {"answers": str(answers)}, 0, 4)


def test_who_waits_for_a_load_shares_it_and_who_comes_after_its_failure_loads_again(answers: Path) -> None:
    async def run() -> None:
        made = scripted(answers)
        ends = await asyncio.gather(made.ready(), made.ready(), return_exceptions=True)
        assert isinstance(ends[0], EngineRefused)
        assert ends[1] is ends[0]
        write(answers)
        assert (await made.ready())["calls"] == 0
        write_nothing(answers)
        await made.ready()
        await made.close()

    asyncio.run(run())


def revived(actor: Actor) -> HostedReplica:
    async def run() -> HostedReplica:
        replica = HostedReplica("e/0", actor, "w")
        await replica.wait_up(1000.0)
        return replica

    return clock.run(run())[0]


def test_a_replica_whose_loads_fail_rests_longer_each_time(answers: Path) -> None:
    actor = Actor(scripted(answers), lambda asked: write(answers) if asked == 3 else None)
    replica = revived(actor)
    assert replica.up
    assert replica.failed is None
    assert actor.asked_at == [0, 1, 3, 7]


def test_a_replica_that_does_not_load_is_given_up_with_the_reason(answers: Path) -> None:
    actor = Actor(scripted(answers), lambda _: None)
    replica = revived(actor)
    assert not replica.up
    assert len(actor.asked_at) == RESTARTS
    assert actor.asked_at[-1] == 1 + 2 + 4 + 8 + 16
    assert "answers.jsonl" in str(replica.failed)
