"""The words of the protocols, from ``forms/<language>/<protocol>.txt``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from dialoom.engine import Message
from dialoom.prompt_files import entries, read_prompts
from dialoom.protocol import Exchange

FOLDER = Path(__file__).parent / "forms"


@cache
def words(protocol: str, language: str) -> Mapping[str, str]:
    """``name = text`` of one protocol in one language."""
    return entries(read_prompts(FOLDER)[f"{language}/{protocol}"])


def as_messages(exchanges: Sequence[Exchange], language: str, protocol: str) -> list[Message]:
    """Each exchange as what the model said and what came of it."""
    label = words(protocol, language)["observation"]
    messages = []
    for exchange in exchanges:
        messages.append(Message("assistant", exchange.answer or "…"))
        messages.append(Message("user", f"{label} {exchange.observation}"))
    return messages
