"""The methods that the tracker is compared with: what they ask, and what they make of answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dialoom import registry
from dialoom.answer_schema import bounded
from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.engine import Request, Response
from dialoom.errors import PromptTooLong
from dialoom.outcome import Outcome
from dialoom.protocol import Action
from dialoom.schema import Schema
from dialoom.state import DELETE, BeliefState, SlotRef
from dialoom.usage import Usage
from support.context import Answers, InProcess
from support.town import TOWN

NAME, AREA, TO = SlotRef("inn", "name"), SlotRef("inn", "area"), SlotRef("cab", "to")
SAID = Dialogue(
    "d",
    (
        Turn(Speaker.USER, "a room at the Heron in the north"),
        Turn(Speaker.SYSTEM, "ok"),
        Turn(Speaker.USER, "not the Heron, and a cab to town"),
    ),
)


def say(tool: str, protocol: str = "json", **arguments: Any) -> str:
    return str(registry.find("protocols", protocol).render(Action(tool, arguments)))


def services(*names: str) -> str:
    return say("name_services", services=list(names))


def state(**values: str) -> str:
    return say("give_state", slots=[{"slot": s, "value": v} for s, v in values.items()])


def track(method: str, answers: Any, schema: Schema = TOWN, said: Dialogue = SAID, **settings: Any) -> InProcess:
    plugin = registry.find("methods", method)
    context = InProcess(said, schema, Answers(answers))  # type: ignore[arg-type]
    asyncio.run(plugin.create(plugin.config(**settings), schema).run(said, context))
    return context


def test_srp_asks_for_services_then_for_all_their_slots() -> None:
    answers = [
        services("inn"),
        state(name="the Heron", area="north"),
        services("inn", "cab"),
        state(area="north", to="town"),
    ]
    context = track("srp", answers)
    assert [c.step for c in context.calls] == ["name_services", "give_state"] * 2
    assert [t.state for t in context.traces] == [
        BeliefState({NAME: "the Heron", AREA: "north"}),
        BeliefState({AREA: "north", TO: "town"}),
    ]
    assert context.traces[1].delta == {NAME: DELETE, TO: "town"}
    first, second = (r.messages[0].content for r in context.requests[:2])
    assert "- cab: Rides in town" in first and "Part of town" not in first
    assert "Part of town [North | South | Old Town]" in second and "Pick-up time" not in second
    assert context.requests[2].messages[1].content.splitlines()[1:] == [
        "User: a room at the Heron in the north", "System: ok", "User: not the Heron, and a cab to town",
    ]  # fmt: skip


def test_srp_keeps_the_state_of_services_it_does_not_name() -> None:
    context = track("srp", [services("inn"), state(name="the Heron"), services("cab"), state(to="town")])
    assert context.traces[1].state == BeliefState({NAME: "the Heron", TO: "town"})
    assert len(track("srp", [services(), services("none")]).calls) == 2


def test_the_single_prompt_asks_once_for_everything() -> None:
    whole = say("give_state", slots=[{"slot": "inn-name", "value": "the Heron"}, {"slot": "area", "value": "east"}])
    context = track("single_prompt", [whole, state(to="town")])
    assert [c.step for c in context.calls] == ["give_state"] * 2
    assert context.traces[0].state == BeliefState({NAME: "the Heron", AREA: "east"})
    assert context.traces[1].state == BeliefState({TO: "town"})
    prompt = context.requests[0].messages[0].content
    assert all(s.description in prompt for service in TOWN.services.values() for s in service.slots)


def test_functions_are_services_and_their_arguments_changes() -> None:
    context = track("fnctod", [say("set_inn", name="the Heron", area="north"), say("set_cab", to="town", colour="red")])
    assert [c.step for c in context.calls] == ["call_function"] * 2
    assert [t.state for t in context.traces] == [
        BeliefState({NAME: "the Heron", AREA: "north"}),
        BeliefState({NAME: "the Heron", AREA: "north", TO: "town"}),
    ]
    outside = track("fnctod", [say("set_inn", name="the Heron", area="east"), say("no_change")])
    assert [t.state for t in outside.traces] == [BeliefState({NAME: "the Heron"})] * 2
    unknown = track("fnctod", [say("fly"), say("no_change")])
    assert [t.outcome for t in unknown.traces] == [Outcome.FALLBACK, Outcome.ACCEPTED]


def test_native_calls_get_definitions_with_names_that_endpoints_accept() -> None:
    call = {"function": {"name": "set_inn", "arguments": '{"name": "the Heron"}'}}
    answers = [Response("", Usage(), tool_calls=(call,)), Response("", Usage(), tool_calls=({"name": "no_change"},))]
    context = track("fnctod", answers, protocol="tools")
    assert [t.state for t in context.traces] == [BeliefState({NAME: "the Heron"})] * 2
    definitions = [tool["function"] for tool in context.requests[0].tools]
    assert [d["name"] for d in definitions] == ["set_inn", "set_cab", "set_table", "set_service_4", "no_change"]
    assert definitions[0]["parameters"]["properties"]["area"]["enum"] == ["North", "South", "Old Town", "dontcare"]
    assert definitions[0]["parameters"]["required"] == []


@pytest.mark.parametrize("method", ["srp", "single_prompt", "fnctod"])
def test_unusable_answers_and_long_prompts_leave_the_state(method: str) -> None:
    context = track(method, ["hm", "hm"])
    assert [t.outcome for t in context.traces] == [Outcome.NOT_PARSABLE] * 2
    assert len(context.calls) == 2 and context.calls[0].rules == ("action.not_parsable",)

    def too_long(request: Request) -> str:
        raise PromptTooLong("9,000 tokens")

    context = track(method, too_long)
    assert [(t.outcome, t.state) for t in context.traces] == [(Outcome.PROMPT_TOO_LONG, BeliefState())] * 2


@pytest.mark.parametrize("protocol", ["json", "text"])
@pytest.mark.parametrize("method", ["srp", "single_prompt", "fnctod"])
def test_every_protocol_and_language(method: str, protocol: str) -> None:
    def answer(request: Request) -> str:
        if request.answer_schema is not None:
            bounded(request.answer_schema)
        system = request.messages[0].content
        assert "用户" in system and "茶馆" in system
        if "name_services" in system:
            return say("name_services", protocol, services=["茶馆"])
        if "give_state" in system:
            return say("give_state", protocol, slots={"店名": "云上"})
        return say("set_service_4", protocol, 店名="云上")

    said = Dialogue("d", (Turn(Speaker.USER, "云上茶馆，谢谢"),))
    (trace,) = track(method, answer, said=said, protocol=protocol).traces
    assert trace.state == BeliefState({SlotRef("茶馆", "店名"): "云上"})
    assert [(s.start, s.end) for s in trace.support] == [(0, 2)]


@pytest.mark.parametrize("method", ["srp", "single_prompt", "fnctod"])
def test_they_declare_the_state_only(method: str) -> None:
    plugin = registry.find("methods", method)
    assert plugin.name == method and plugin.declares == {"state"} and plugin.roles == ("main",)
    prompts = plugin.prompts(plugin.config())
    assert {"baseline/en/texts.txt", "tracker/zh/step.txt", "protocols/en/json.txt"} <= set(prompts)
    assert "tracker/en/system.txt" not in prompts
