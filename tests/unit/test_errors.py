"""Errors on purpose: one safe line each, and the same after a trip through a process."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom import errors
from dialoom.errors import DialoomError, EngineBusy, EngineError, LimitReached

KINDS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, DialoomError)]


def test_every_class_has_a_kind_of_its_own() -> None:
    kinds = [c.kind for c in KINDS]
    assert len(set(kinds)) == len(kinds)


@given(st.text(max_size=2000), st.text(max_size=400), st.text(max_size=2000))
def test_the_text_is_one_line_of_bounded_length(what: str, where: str, hint: str) -> None:
    text = str(DialoomError(what, where=where, hint=hint))
    assert len(text.splitlines()) <= 1
    assert len(text) <= 1510
    text.encode()


def test_the_text_says_where_what_and_what_to_do() -> None:
    assert str(DialoomError("is wrong", where="a:1", hint="Do this.")) == "a:1: is wrong. Do this."
    assert str(DialoomError("is wrong")) == "is wrong"


@pytest.mark.parametrize("kind", KINDS)
def test_errors_travel_between_processes(kind: type[DialoomError]) -> None:
    error = kind("what", where="where", hint="hint")
    error.__dict__["attempts"] = 3
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_their_own_fields_travel_too() -> None:
    assert pickle.loads(pickle.dumps(EngineBusy("x", retry_after_s=7.0))).retry_after_s == 7.0
    assert pickle.loads(pickle.dumps(LimitReached("x", scope="job"))).scope == "job"


def test_which_engine_errors_may_be_tried_again() -> None:
    retriable = {c.kind for c in KINDS if issubclass(c, EngineError) and c.retriable}
    assert retriable == {"engine_down", "engine_busy", "engine_crashed"}
