"""What a method is, and what it is given.

A method is one async function over a dialogue and a context. It may await ``ctx.generate`` any number of times and
reports each turn it decides with ``ctx.turn``. Concurrency, retries, call log, limits, files and progress are not its
business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from dialoom.dialogue import Dialogue
from dialoom.engine import Message, Response
from dialoom.outcome import Outcome
from dialoom.schema import Schema
from dialoom.state import BeliefState, Delta, SlotRef
from dialoom.unit import UnitKey


@dataclass(frozen=True, slots=True)
class Fired:
    """A validator rule that rejected a proposal. ``call`` is the number of the call within its turn, from 0."""

    rule: str
    call: int
    service: str = ""
    slot: str = ""
    value: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Support:
    """Where a value comes from: characters ``start`` to ``end`` of the text of turn ``turn`` (index from 0)."""

    ref: SlotRef
    turn: int
    start: int
    end: int


@dataclass(slots=True)
class Call:
    """One finished model call of this unit, and what the method made of it.

    The runtime makes it; the method fills ``step``, ``action``, ``observation`` and ``rules``, which are written to
    the calls table.
    """

    response: Response
    index: int
    """Number of the call within its turn, from 0."""
    step: str = ""
    action: Mapping[str, Any] | None = None
    observation: str = ""
    rules: tuple[str, ...] = ()
    row: dict[str, Any] = field(default_factory=dict)
    """The runtime's own part of the row."""


@dataclass(slots=True)
class TurnTrace:
    """What a method decided at one turn: one row of the turns table.

    A method fills what it has. ``delta`` is what was accepted, ``state`` the state after the turn, ``intents`` the
    (service, intent) pairs it chose, ``first_proposal`` the first delta proposed whatever a validator said of it.
    ``output`` holds anything else as JSON.
    """

    turn: int
    """Index of the turn in the dialogue, from 0, all speakers counted."""
    outcome: Outcome = Outcome.ACCEPTED
    state: BeliefState | None = None
    delta: Delta = field(default_factory=dict)
    intents: Sequence[tuple[str, str]] = ()
    active_intents: Mapping[str, str] = field(default_factory=dict)
    """Service to intent in force after the turn."""
    requested: Sequence[SlotRef] | None = None
    first_proposal: Delta = field(default_factory=dict)
    fired: Sequence[Fired] = ()
    support: Sequence[Support] = ()
    output: Mapping[str, Any] | None = None
    error: str = ""


class Context(Protocol):
    """What a method may use while it runs one unit."""

    unit: UnitKey
    schema: Schema
    """The schema cut to the dialogue's candidate services."""

    async def generate(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        turn: int,
        answer_schema: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Call:
        """One model call in ``role``; retried, logged, counted and replayed by the runtime.

        Raises PromptTooLong, RequestRefused and LimitReached(scope="unit"), which end a turn; and errors that end the
        unit, which a method lets pass.
        """

    async def embed(self, role: str, texts: Sequence[str], *, turn: int = 0) -> list[list[float]]:
        """One vector a text from the engine of ``role``: one call, treated as those of :meth:`generate` are."""

    def turn(self, trace: TurnTrace) -> None:
        """Report one decided turn; in order, once a turn."""


class MethodConfig(BaseModel, extra="forbid", frozen=True):
    """Fields every method's settings share; each method subclasses it. Unknown fields are refused."""

    max_tokens: int = 256
    """Tokens an answer may have, at most."""
    temperature: float = 0.0
    """0 is greedy."""


class Method(Protocol):
    """A method made from its settings, for one schema; shared by all units of a worker, so it keeps no unit's data."""

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        """Work through one dialogue."""


class MethodPlugin(Protocol):
    """What a method's module offers as ``PLUGIN``."""

    name: str
    config: type[MethodConfig]
    declares: frozenset[str]
    """The outputs it predicts, of ``state``, ``intent``, ``requested_slots``; a score of any other output is null."""
    roles: tuple[str, ...]
    """The roles it calls."""

    def create(self, config: Any, schema: Schema) -> Method:
        """A method for ``schema``. Raises SchemaError or JobError where settings and schema do not fit."""

    def prompts(self, config: Any) -> Mapping[str, str]:
        """Every prompt text it may use, by file name: hashed into the digest and kept as artefacts."""
