"""What calls cost: a dated table of list prices, overridden by the job; and one's own GPUs by the hour.

Two names, never mixed: *attributed* is what a unit would have cost alone (replayed calls at their original tokens),
*paid* is what this run paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml
from pydantic import BaseModel, Field

from dialoom.errors import JobError
from dialoom.registry import did_you_mean
from dialoom.usage import Usage

MILLION = 1e6


class Price(BaseModel, extra="forbid", frozen=True):
    """US dollars: per million tokens for hosted models, per GPU and hour for one's own."""

    input: float = Field(default=0.0, ge=0)
    """A million prompt tokens."""
    cached_input: float | None = Field(default=None, ge=0)
    """A million prompt tokens served from a cache; ``input`` by default."""
    output: float = Field(default=0.0, ge=0)
    """A million output tokens."""
    reasoning: float | None = Field(default=None, ge=0)
    """A million output tokens spent on thinking text; ``output`` by default."""
    gpu_hour: float = Field(default=0.0, ge=0)
    """One GPU for one hour, for engines that run here; paid from when they are asked for until they are closed."""

    def of(self, usage: Usage) -> float:
        """Dollars for the tokens of ``usage``; GPU time is not in it."""
        cached = self.input if self.cached_input is None else self.cached_input
        reasoning = self.output if self.reasoning is None else self.reasoning
        total = (usage.prompt_tokens - usage.cached_tokens) * self.input + usage.cached_tokens * cached
        total += (usage.output_tokens - usage.reasoning_tokens) * self.output + usage.reasoning_tokens * reasoning
        return total / MILLION


@cache
def list_prices() -> tuple[str, Mapping[str, Price]]:
    """(date, name to price) of the table that comes with dialoom."""
    record = yaml.safe_load(files("dialoom").joinpath("prices.yaml").read_text(encoding="utf-8"))
    return str(record["as_of"]), {name: Price.model_validate(p) for name, p in record["prices"].items()}


def price_record(name: str, own: Mapping[str, Price]) -> dict[str, object]:
    """What a run keeps of a price: its figures, currency, and the date of the table; None for the job's own."""
    price = find_price(name, own)
    cached = price.input if price.cached_input is None else price.cached_input
    reasoning = price.output if price.reasoning is None else price.reasoning
    figures = {**price.model_dump(), "cached_input": cached, "reasoning": reasoning}
    return {"name": name, **figures, "currency": "USD", "as_of": None if name in own else list_prices()[0]}


def find_price(name: str, own: Mapping[str, Price]) -> Price:
    """The job's own price of that name, else the table's. Raises JobError with the nearest names."""
    table = list_prices()[1]
    if name in own:
        return own[name]
    if name in table:
        return table[name]
    raise JobError(f"no price is named '{name}'", hint=did_you_mean(name, sorted({*own, *table})))
