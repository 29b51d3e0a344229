"""The same job on a simulated cluster of three nodes: same results, whatever becomes of the nodes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dialoom.errors import EngineError
from dialoom.run import RunResult, run
from dialoom.runtime.progress import Progress
from support.jobs import chat, small_plan
from support.results import rows
from support.shared import ROOT

pytestmark = pytest.mark.timeout(400)  # every node is a Ray of its own, slow to start on a busy machine

DIALOGUES = [chat(f"d{i}", "hello", "and", "bye") for i in range(60)]
N_CALLS = 60 * 3 * 2
PINNED = {"use": "support.pinned_engine:PLUGIN", "rule": "support.rules:echo", "concurrency": 4, "latency_s": 0.1}


class Nodes:
    """A head and further nodes, each with one processor."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self._others: list[Any] = []
        self.address: str = self._cluster.address

    def add(self) -> None:
        """One more node, there when this returns."""
        self._others.append(self._cluster.add_node(num_cpus=1))
        self._cluster.wait_for_nodes()

    def lose(self) -> None:
        """The latest node ends as if its power went."""
        self._cluster.remove_node(self._others.pop(), allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """A cluster of one node that this process is connected to."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_health_check_timeout_ms", "30000")
        made = Nodes()
        try:
            ray.init(address=made.address, namespace="dialoom", log_to_driver=False, logging_level="ERROR")
            yield made
        finally:
            ray.shutdown()
            made.stop()


def job(folder: Path, **engine: Any) -> Any:
    return small_plan(folder, DIALOGUES, engines={"main": PINNED | engine}, run={"workers": 3, "commit_s": 0.3})


def assert_whole(result: RunResult) -> None:
    """Every unit once, accepted, with the states the rule gives."""
    assert result.status == 0, result.error
    units = rows(result, "dialogues")
    assert sorted(r["dialogue_id"] for r in units) == sorted(f"d{i}" for i in range(60))
    assert {r["outcome"] for r in units} == {"accepted"}
    turns = rows(result, "turns")
    assert len(turns) == 180
    for turn in turns:
        (value,) = [v["value"] for v in turn["state"] if v["slot"] == f"t{turn['turn']}"]
        assert value == f"{turn['dialogue_id']} {turn['turn']} 1 {turn['user_text']}" * 2
    assert len(rows(result, "calls")) == N_CALLS


def replicas(result: RunResult) -> set[str]:
    return {c["replica"] for c in rows(result, "calls")}


def test_three_nodes_do_what_one_does_and_a_lost_one_loses_nothing(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add()
    nodes.add()
    whole = run(job(tmp_path / "whole", replicas=3))
    assert_whole(whole)
    assert replicas(whole) == {"main/0", "main/1", "main/2"}

    lost = threading.Event()

    def lose(progress: Progress) -> None:
        if progress.done >= 5 and not lost.is_set():
            lost.set()
            threading.Thread(target=nodes.lose).start()

    hurt = run(job(tmp_path / "hurt", replicas=3), observe=lose)
    assert lost.is_set()
    assert_whole(hurt)


def test_a_node_that_comes_later_takes_part(nodes: Nodes, tmp_path: Path) -> None:
    """A replica that waits for its node starts with it, while the others work."""
    added = threading.Event()

    def add(progress: Progress) -> None:
        if progress.done >= 3 and not added.is_set():
            added.set()
            nodes.add()

    result = run(job(tmp_path, replicas=2, latency_s=0.3), observe=add)
    assert added.is_set()
    assert_whole(result)
    assert replicas(result) == {"main/0", "main/1"}


def test_an_engine_that_no_node_can_hold_ends_the_run_in_time_and_says_why(nodes: Nodes, tmp_path: Path) -> None:
    plan = small_plan(
        tmp_path, DIALOGUES, engines={"main": PINNED | {"use": "support.pinned_engine:HUGE"}}, limits={"stall_s": 4.0}
    )
    troubles: list[str] = []
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"engine 'main' did not start within 4 s.*64 num_cpus, the largest has 1"):
        run(plan, observe=lambda p: troubles.append(p.trouble))
    assert time.monotonic() - began < 60
    assert any("waits for a node with 64 num_cpus" in t for t in troubles), "it says what it waits for while it waits"
