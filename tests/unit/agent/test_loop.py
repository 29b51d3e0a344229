"""The bounded loop: order, bound, ends, records, and that it knows nothing of any task."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.agent import loop
from dialoom.agent.loop import End, Episode, Judgement, Step, View, run
from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.engine import Message, Request, Response
from dialoom.errors import EngineDown, LimitReached, PromptTooLong, RequestRefused
from dialoom.protocol import Action, NotAnAction
from dialoom.protocols.json import PLUGIN as JSON
from dialoom.schema import Schema
from support.context import Answers, InProcess


class Doors:
    """An environment: "open" finishes, "knock" is rejected, anything else is observed."""

    def view(self, steps: Sequence[Step]) -> View:
        told = JSON.messages([s.exchange() for s in steps], "en")
        return View([Message("system", "Doors."), Message("user", "Go."), *told], label=f"door {len(steps)}")

    def parse(self, response: Response) -> Action | NotAnAction:
        return JSON.parse(response)

    async def judge(self, action: Action, steps: Sequence[Step]) -> Judgement:
        if action.tool == "open":
            return Judgement("It opens.", finished=True)
        return Judgement("No.", ("door.shut",)) if action.tool == "knock" else Judgement("Nothing.")

    def unreadable(self, problem: NotAnAction, steps: Sequence[Step]) -> Judgement:
        return Judgement(f"What? {problem.what}", ("door.unreadable",))


def context(answers: object) -> InProcess:
    dialogue = Dialogue("d", (Turn(Speaker.USER, "hi"),))
    return InProcess(dialogue, Schema("s", {}), Answers(answers))  # type: ignore[arg-type]


def episode(ctx: InProcess, bound: int = 4) -> Episode:
    return asyncio.run(run(ctx, Doors(), role="main", turn=0, bound=bound))


def do(tool: str) -> str:
    return JSON.render(Action(tool, {}))


def test_the_module_holds_no_word_of_dialogue_state() -> None:
    source = Path(loop.__file__).read_text(encoding="utf-8").lower()
    forbidden = "state slot intent belief service domain dialogue utterance tracker"
    assert [word for word in forbidden.split() if re.search(rf"\b{word}|{word}s?\b", source)] == []


def test_it_ends_when_the_environment_says_so_and_records_every_call() -> None:
    ctx = context([do("look"), "mumble", do("knock"), do("open"), do("open")])
    result = episode(ctx)
    assert result.end is End.FINISHED
    assert [(c.step, c.rules, c.observation) for c in ctx.calls] == [
        ("door 0", (), "Nothing."),
        ("door 1", ("door.unreadable",), "What? no JSON object"),
        ("door 2", ("door.shut",), "No."),
        ("door 3", (), "It opens."),
    ]
    assert [c.action and c.action["tool"] for c in ctx.calls] == ["look", None, "knock", "open"]
    shown = [m.content for m in ctx.requests[3].messages[2:]]
    assert shown == [
        do("look"),
        "Result: Nothing.",
        "mumble",
        "Result: What? no JSON object",
        do("knock"),
        "Result: No.",
    ]


def test_the_bound_holds() -> None:
    ctx = context([do("knock")] * 9)
    assert episode(ctx, bound=3).end is End.BOUND
    assert len(ctx.calls) == 3


def test_nothing_readable_is_an_end_of_its_own() -> None:
    assert episode(context(["?"] * 9)).end is End.NOT_PARSABLE
    assert episode(context(["?", do("look"), "?", "?"])).end is End.BOUND


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (PromptTooLong("4,100 tokens"), End.PROMPT_TOO_LONG),
        (RequestRefused("content filter"), End.REFUSED),
        (LimitReached("calls used up", scope="unit"), End.LIMIT),
    ],
)
def test_errors_of_one_request_end_the_episode(error: Exception, end: End) -> None:
    def answer(request: Request) -> str:
        if request.address.call == 1:
            raise error
        return do("look")

    result = episode(context(answer))
    assert (result.end, len(result.steps), result.error) == (end, 1, str(error))


@pytest.mark.parametrize("error", [EngineDown("gone"), LimitReached("money", scope="job")])
def test_errors_of_the_whole_unit_pass_through(error: Exception) -> None:
    def answer(request: Request) -> str:
        raise error

    with pytest.raises(type(error)):
        episode(context(answer))


@given(st.lists(st.sampled_from(["look", "knock", "open", "?"]), min_size=8, max_size=8), st.integers(1, 8))
def test_never_more_calls_than_the_bound_and_none_after_the_end(tools: list[str], bound: int) -> None:
    ctx = context([do(t) for t in tools])
    result = episode(ctx, bound)
    ends = tools.index("open") + 1 if "open" in tools else 99
    assert len(ctx.calls) == len(result.steps) == min(bound, ends)
    assert (result.end is End.FINISHED) == (ends <= bound)
