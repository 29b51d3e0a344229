"""What a model call used: tokens and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls, and engine seconds.

    ``cached_tokens`` are the part of ``prompt_tokens`` served from a prefix cache; ``reasoning_tokens`` the part of
    ``output_tokens`` spent on thinking text. ``queue_s`` is time waited in the engine, ``run_s`` time computed there.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    queue_s: float = 0.0
    run_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.queue_s + other.queue_s,
            self.run_s + other.run_s,
        )
