"""The one bounded loop behind every agent: ask a model, read one action, let the environment judge it, repeat.

The environment owns all meaning; the loop owns order, the bound, and the record of every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from dialoom.engine import Message, Response
from dialoom.errors import LimitReached, PromptTooLong, RequestRefused
from dialoom.method import Call, Context
from dialoom.protocol import Action, Exchange, NotAnAction


class End(StrEnum):
    """How an episode ended."""

    FINISHED = "finished"
    BOUND = "bound"
    """The last call allowed did not finish it."""
    NOT_PARSABLE = "not_parsable"
    """As ``bound``, and no answer could be read as an action."""
    PROMPT_TOO_LONG = "prompt_too_long"
    REFUSED = "refused"
    """The endpoint refused a request."""
    LIMIT = "limit"
    """A budget of the unit is spent."""


class View(NamedTuple):
    """What the next call sends; ``label`` names the step in traces."""

    messages: Sequence[Message]
    label: str = ""
    answer_schema: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    stop: Sequence[str] = ()
    max_tokens: int | None = None


class Judgement(NamedTuple):
    """What came of one answer. ``rules`` are the identifiers of the rules that rejected it."""

    observation: str
    rules: tuple[str, ...] = ()
    finished: bool = False


class Step(NamedTuple):
    """One call that is over."""

    call: Call
    action: Action | None
    judgement: Judgement

    def exchange(self) -> Exchange:
        """For the next prompt."""
        return Exchange(self.call.response.text, self.action, self.judgement.observation)


class Environment(Protocol):
    """What an agent acts in, for one episode."""

    def view(self, steps: Sequence[Step]) -> View:
        """What to send next. A pure function of the steps so far and the environment."""

    def parse(self, response: Response) -> Action | NotAnAction:
        """The answer as an action; never raises."""

    async def judge(self, action: Action, steps: Sequence[Step]) -> Judgement:
        """Carry the action out, or reject it."""

    def unreadable(self, problem: NotAnAction, steps: Sequence[Step]) -> Judgement:
        """What to observe after an answer that is no action."""


@dataclass
class Episode:
    """All steps and how they ended; ``error`` says why where an error ended them."""

    steps: list[Step] = field(default_factory=list)
    end: End = End.BOUND
    error: str = ""


async def run(ctx: Context, environment: Environment, *, role: str, turn: int, bound: int) -> Episode:
    """At most ``bound`` calls in ``role``; errors that end the whole unit pass through."""
    episode = Episode()
    steps = episode.steps
    while len(steps) < bound:
        view = environment.view(steps)
        try:
            call = await ctx.generate(
                role,
                view.messages,
                turn=turn,
                answer_schema=view.answer_schema,
                tools=view.tools,
                max_tokens=view.max_tokens,
                stop=view.stop,
            )
        except (PromptTooLong, RequestRefused, LimitReached) as error:
            episode.end, episode.error = _end_of(error), str(error)
            return episode
        step = await _step(environment, call, steps)
        _record(call, step, view.label)
        steps.append(step)
        if step.judgement.finished:
            episode.end = End.FINISHED
            return episode
    episode.end = End.BOUND if any(step.action for step in steps) else End.NOT_PARSABLE
    return episode


async def _step(environment: Environment, call: Call, steps: Sequence[Step]) -> Step:
    read = environment.parse(call.response)
    if isinstance(read, NotAnAction):
        return Step(call, None, environment.unreadable(read, steps))
    return Step(call, read, await environment.judge(read, steps))


def _record(call: Call, step: Step, label: str) -> None:
    call.step = label
    call.action = step.action.record() if step.action else None
    call.observation = step.judgement.observation
    call.rules = step.judgement.rules


def _end_of(error: PromptTooLong | RequestRefused | LimitReached) -> End:
    """Raises the error itself where it ends more than this episode."""
    if isinstance(error, PromptTooLong):
        return End.PROMPT_TOO_LONG
    if isinstance(error, RequestRefused):
        return End.REFUSED
    if error.scope != "unit":
        raise error
    return End.LIMIT
