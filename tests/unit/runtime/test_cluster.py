"""Joining a cluster that is not there, and errors without Ray's decoration."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from dialoom.errors import EngineDown, JobError
from dialoom.runtime.cluster import cause_of, cluster, first_line, own_paths


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_cluster_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"{prefix}127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(EngineDown) as caught, cluster():
            pass
    assert str(caught.value).startswith(f"RAY_ADDRESS={address}: no Ray cluster answers: ")
    assert "unset RAY_ADDRESS" in caught.value.hint


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999999", "no.such.host.invalid:6379"])
def test_addresses_that_are_none(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(EngineDown, match=f"RAY_ADDRESS={address}: "), cluster():
        pass


def test_processes_find_the_modules_that_this_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/some/where", "", *sys.path])
    monkeypatch.setenv("PYTHONPATH", "/before")
    with own_paths():
        found = os.environ["PYTHONPATH"].split(os.pathsep)
        assert found[0] == "/some/where"
        assert found[1] == str(Path.cwd())
        assert not any(p.startswith(sys.prefix) for p in found)
    assert os.environ["PYTHONPATH"] == "/before"


def test_errors_without_decoration() -> None:
    from ray.exceptions import RayActorError, RayTaskError

    cause = JobError("wrong", where="a:1", hint="Do this.")
    wrapped = RayTaskError("f", "a long\ntraceback", cause).as_instanceof_cause()
    assert cause_of(wrapped) is cause
    assert first_line(wrapped) == "a:1: wrong. Do this."
    assert first_line(RayTaskError("f", "traceback", ValueError("one\ntwo")).as_instanceof_cause()) == "ValueError: one"
    assert first_line(RayActorError()).startswith("RayActorError: ")
