"""Thinking text that a model writes before its answer, between ``<think>`` and ``</think>``."""

from __future__ import annotations

from dialoom.errors import EngineRefused

CHANNEL = "<|channel|>"
OPEN = "<think>"
CLOSE = "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """``(thinking, answer)``, both trimmed where there was thinking; ``("", text)`` where there was none.

    Thinking that never closes (cut at the token limit) leaves an empty answer. Where the chat template itself opens the
    tag, the text holds only the closing one; JSON is never taken for thinking.
    """
    head = text.lstrip()
    if head.startswith(OPEN):
        thinking, _, answer = head[len(OPEN) :].partition(CLOSE)
        return thinking.strip(), answer.strip()
    if CLOSE in head and not head.startswith(("{", "[")):
        thinking, _, answer = head.partition(CLOSE)
        return thinking.strip(), answer.strip()
    return "", text


def refuse_channels(chat_template: object, model: str) -> None:
    """Raise EngineRefused for a model that thinks in channels: their marks are tokens that decoding leaves out, so that
    its thinking would be taken for its answer.
    """
    if CHANNEL in str(chat_template):
        hint = f"Run 'vllm serve {model}', which separates and counts it, and name it with 'use: openai' and base_url."
        raise EngineRefused(f"'{model}' thinks in channels, which only vLLM's server separates", hint=hint)
