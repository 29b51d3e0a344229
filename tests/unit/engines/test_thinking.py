"""Thinking text is separated from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.engines._thinking import CLOSE, OPEN, refuse_channels, split_thinking
from dialoom.errors import EngineRefused


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("plain", "", "plain"),
        (" plain ", "", " plain "),
        ("\n<think>\nwhy\n</think>\n\nyes", "why", "yes"),
        ("<think></think>yes", "", "yes"),
        ("why</think>yes", "why", "yes"),
        ("<think>cut off", "cut off", ""),
        ('{"a": "</think>"}', "", '{"a": "</think>"}'),
        ("a <think> b", "", "a <think> b"),
        ("", "", ""),
    ],
)
def test_split(text: str, thinking: str, answer: str) -> None:
    assert split_thinking(text) == (thinking, answer)


def test_a_model_that_thinks_in_channels_is_refused() -> None:
    refuse_channels(None, "m")
    refuse_channels("{{ '<think>' }} {{ message.content }}", "m")
    with pytest.raises(EngineRefused, match="'openai/oss' thinks in channels") as refused:
        refuse_channels("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}", "openai/oss")
    assert "vllm serve openai/oss" in refused.value.hint


tagless = st.text().filter(lambda t: OPEN not in t and CLOSE not in t)


@given(tagless, tagless)
def test_both_parts_come_back(thinking: str, answer: str) -> None:
    assert split_thinking(OPEN + thinking + CLOSE + answer) == (thinking.strip(), answer.strip())
    assert split_thinking(answer) == ("", answer)
