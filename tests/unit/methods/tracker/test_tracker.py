"""The whole tracker on hand-made dialogues with scripted answers: steps, outcomes, state, traces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from dialoom import registry
from dialoom.answer_schema import bounded
from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.engine import Request
from dialoom.errors import DataError, LimitReached, PromptTooLong, RequestRefused
from dialoom.methods.tracker import PLUGIN
from dialoom.methods.tracker.catalog import IntentRef
from dialoom.methods.tracker.history import History
from dialoom.methods.tracker.turn import TurnEnvironment, TurnInput
from dialoom.outcome import Outcome
from dialoom.protocol import Action
from dialoom.state import DELETE, BeliefState, SlotRef
from support.context import Answers, InProcess
from support.town import TOWN

JSON = registry.find("protocols", "json")
NAME, AREA, GUESTS = SlotRef("inn", "name"), SlotRef("inn", "area"), SlotRef("inn", "guests")
TO, PICKUP = SlotRef("cab", "to"), SlotRef("cab", "pickup")


def classify(*names: str) -> str:
    return str(JSON.render(Action("classify_intent", {"intents": list(names)})))


def slots(*pairs: tuple[str, str]) -> str:
    return str(JSON.render(Action("resolve_slots", {"slots": [{"slot": s, "value": v} for s, v in pairs]})))


def search(query: str) -> str:
    return str(JSON.render(Action("search_history", {"query": query})))


def dialogue(*texts: str, frames: Mapping[int, tuple[Frame, ...]] | None = None) -> Dialogue:
    """Turns by user and system in turn."""
    gold = frames or {}
    turns = [
        Turn(Speaker.SYSTEM if n % 2 else Speaker.USER, text, None if n % 2 or not frames else gold.get(n, ()))
        for n, text in enumerate(texts)
    ]
    return Dialogue("d", tuple(turns))


def track(said: Dialogue, answers: Any, **settings: Any) -> InProcess:
    context = InProcess(said, TOWN, Answers(answers))  # type: ignore[arg-type]
    tracker = PLUGIN.create(PLUGIN.config(**settings), TOWN)  # type: ignore[arg-type]
    asyncio.run(tracker.run(said, context))
    return context


def rules(context: InProcess) -> list[tuple[str, ...]]:
    return [call.rules for call in context.calls]


HELLO = dialogue("I want to stay at the Heron in the north")


def test_two_calls_make_a_turn() -> None:
    context = track(HELLO, [classify("BookInn"), slots(("name", "the Heron"), ("area", "north"))])
    (trace,) = context.traces
    assert trace.outcome is Outcome.ACCEPTED
    assert trace.state == BeliefState({NAME: "the Heron", AREA: "North"})
    assert trace.delta == {NAME: "the Heron", AREA: "North"}
    assert trace.first_proposal == {NAME: "the Heron", AREA: "north"}
    assert trace.intents == (IntentRef("inn", "BookInn"),) and trace.active_intents == {"inn": "BookInn"}
    assert [(s.ref, s.start, s.end) for s in trace.support] == [(NAME, 18, 27), (AREA, 35, 40)]
    assert [c.step for c in context.calls] == ["classify_intent", "resolve_slots"]
    assert (trace.output, trace.error, trace.fired) == (None, "", [])


def test_no_intent_ends_a_turn_with_an_empty_delta() -> None:
    said = dialogue("the Heron", "ok", "thanks", "bye", "the Ram")
    context = track(
        said, [classify("BookInn"), slots(("name", "the Heron")), classify("none"), classify("OrderCab"), slots()]
    )
    traces = context.traces
    assert [t.outcome for t in traces] == [Outcome.ACCEPTED] * 3
    assert [t.state for t in traces] == [BeliefState({NAME: "the Heron"})] * 3
    assert traces[1].delta == {} and traces[1].intents == ()
    assert [dict(t.active_intents) for t in traces] == [{"inn": "BookInn"}, {}, {"cab": "OrderCab"}]


def test_intents_carry_over_beside_new_ones() -> None:
    said = dialogue("an inn", "ok", "and a cab")
    context = track(said, [classify("BookInn"), slots(), classify("OrderCab"), slots()])
    assert context.traces[1].active_intents == {"inn": "BookInn", "cab": "OrderCab"}
    assert "Intents in force: BookInn" in context.requests[2].messages[1].content


def test_several_services_in_one_turn_share_one_call() -> None:
    said = dialogue("Two of us to the Heron, and a cab there at 17:30 for two")
    answer = slots(
        ("inn-guests", "2"), ("cab-guests", "2"), ("name", "the Heron"), ("to", "same as name"), ("pickup", "17:30")
    )
    (trace,) = track(said, [classify("BookInn", "OrderCab"), answer]).traces
    assert trace.state == BeliefState(
        {GUESTS: "2", SlotRef("cab", "guests"): "2", NAME: "the Heron", TO: "the Heron", PICKUP: "17:30"}
    )


def test_a_rejected_proposal_is_corrected_and_all_of_it_was_held_back() -> None:
    answers = [classify("OrderCab"), slots(("to", "the Heron"), ("pickup", "5:30pm")), slots(("pickup", "17:30"))]
    context = track(HELLO, answers)
    (trace,) = context.traces
    assert trace.outcome is Outcome.CORRECTED
    assert trace.state == BeliefState({PICKUP: "17:30"})
    assert trace.first_proposal == {TO: "the Heron", PICKUP: "5:30pm"}
    assert [(f.rule, f.call, f.service, f.slot, f.value, f.expected) for f in trace.fired] == [
        ("schema.type", 1, "cab", "pickup", "5:30pm", "HH:MM")
    ]
    assert "Slot pickup needs HH:MM" in context.requests[2].messages[-1].content


def test_a_rejected_proposal_leaves_no_mark_on_later_turns() -> None:
    said = dialogue("the Heron", "ok", "in the north")
    clean = [classify("BookInn"), slots(("name", "the Heron")), classify("BookInn"), slots(("area", "North"))]
    spoiled = [clean[0], "oops", slots(("name", "the Ram"), ("area", "east")), *clean[1:]]
    tidy, messy = track(said, clean), track(said, spoiled)
    assert [r.messages for r in messy.requests[4:]] == [r.messages for r in tidy.requests[2:]]
    assert [t.state for t in messy.traces] == [t.state for t in tidy.traces]


def test_at_the_bound_the_turn_falls_back() -> None:
    said = dialogue("the Heron", "ok", "in the east", "no", "in the north")
    wrong = [slots(("area", f"east {n}"), ("name", "the Ram")) for n in range(5)]
    answers = [classify("BookInn"), slots(("name", "the Heron")), classify("BookInn"), *wrong, classify("BookInn")]
    context = track(said, [*answers, slots(("area", "North"))])
    assert [t.outcome for t in context.traces] == [Outcome.ACCEPTED, Outcome.FALLBACK, Outcome.ACCEPTED]
    kept = context.traces[1]
    assert kept.delta == {} and kept.state == BeliefState({NAME: "the Heron"})
    assert kept.output == {"ended": "bound"} and len(kept.fired) == 5
    assert sum(r.address.turn == 2 for r in context.requests) == 6
    assert context.traces[2].state == BeliefState({NAME: "the Heron", AREA: "North"})


def test_answers_that_are_no_action() -> None:
    context = track(HELLO, ["hm", classify("BookInn"), '{"tool": "resolve_slots", "argu', slots(("name", "the Heron"))])
    assert context.traces[0].outcome is Outcome.CORRECTED
    assert rules(context) == [("action.not_parsable",), (), ("action.not_parsable",), ()]
    assert [c.action is None for c in context.calls] == [True, False, True, False]
    shown = context.requests[1].messages[-1].content
    assert "Not a valid action" in shown and '{"tool":"classify_intent"' in shown
    assert '{"tool":"resolve_slots"' in context.requests[3].messages[-1].content
    (lost,) = track(HELLO, ["hm"] * 6).traces
    assert lost.outcome is Outcome.NOT_PARSABLE and lost.state == BeliefState()


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        ([slots(("name", "the Heron"))], "action.order"),
        ([JSON.render(Action("book", {}))], "action.unknown_tool"),
        ([JSON.render(Action("classify_intent", {"intents": 3}))], "action.malformed"),
        ([classify("BookInn"), JSON.render(Action("resolve_slots", {"slots": "x"}))], "action.malformed"),
        ([classify("BookInn"), classify("BookInn")], "action.repeated"),
        ([classify("OrderPizza")], "schema.unknown_intent"),
        ([classify("FindInn")], "schema.unknown_intent"),
        ([classify("BookInn"), slots(("pickup", "17:30"))], "action.intent_not_confirmed"),
        ([classify("BookInn"), slots(("colour", "red"))], "schema.unknown_slot"),
        ([classify("BookInn", "OrderCab"), slots(("guests", "2"))], "schema.ambiguous_slot"),
        ([classify("BookInn"), slots(("name", "the inn"))], "coref.kind"),
        ([classify("OrderCab"), slots(("to", "inn-name"))], "coref.copy"),
    ],
)
def test_each_rule_fires_and_can_be_off(answers: list[str], rule: str) -> None:
    ending = [classify("OrderCab", "BookInn"), slots(("name", "the Heron"))]
    context = track(HELLO, [*answers, *ending])
    assert context.traces[0].outcome is Outcome.CORRECTED
    assert [f.rule for f in context.traces[0].fired] == [rule]
    assert context.calls[len(answers) - 1].rules == (rule,) and context.calls[len(answers) - 1].observation
    off = track(HELLO, [*answers, *ending], validator=False)
    assert rule == "action.unknown_tool" or not any(rules(off))


def test_the_same_refused_call_is_refused_as_a_repetition_until_the_intents_change() -> None:
    order = slots(("pickup", "17:30"))
    answers = [order, classify("BookInn"), order, order, classify("OrderCab"), order]
    context = track(HELLO, answers)
    expected = ["action.order", "action.intent_not_confirmed", "action.repeated"]
    assert [f.rule for f in context.traces[0].fired] == expected
    assert context.traces[0].state == BeliefState({PICKUP: "17:30"})


def environment(**settings: Any) -> TurnEnvironment:
    tracker = PLUGIN.create(PLUGIN.config(**settings), TOWN)  # type: ignore[arg-type]
    history = History(TOWN.services)
    history.add(0, Speaker.USER, "the Heron")
    message = JSON.messages([], "en")
    given = TurnInput(message, BeliefState(), {}, history, 0, can_search=False)
    return TurnEnvironment(tracker.scene(TOWN, "en"), tracker.config, tracker.protocol, given)


def test_nothing_is_taken_after_the_end() -> None:
    turn = environment()
    judged = asyncio.run(turn.judge(Action("classify_intent", {"intents": ["none"]}), ()))
    assert judged.finished
    late = asyncio.run(turn.judge(Action("resolve_slots", {"slots": []}), ()))
    assert late.rules == ("action.after_end",) and not late.finished


def test_a_search_shows_earlier_turns_and_what_they_set() -> None:
    said = dialogue("the Heron please", "The Heron is booked.", "thanks", "Bye", "a cab to that inn at 17:30")
    answers = [classify("BookInn"), slots(("name", "the Heron")), classify("none"), classify("OrderCab")]
    answers += [slots(("to", "that inn")), search("the inn"), slots(("to", "the Heron"), ("pickup", "17:30"))]
    context = track(said, answers)
    assert context.traces[2].outcome is Outcome.CORRECTED
    assert context.traces[2].delta == {TO: "the Heron", PICKUP: "17:30"}
    shown = context.calls[5].observation
    assert "User: the Heron please (recorded: inn-name = the Heron)" in shown and "17:30" not in shown
    assert [s.turn for s in context.traces[2].support] == [1, 4]
    assert (
        "Bye" in context.requests[3].messages[1].content
        and "Heron please" not in context.requests[3].messages[1].content
    )


def test_a_search_is_offered_once_beside_slots_and_where_there_is_something_to_search() -> None:
    said = dialogue("the Heron", "ok", "again")
    context = track(said, [classify("BookInn"), slots(), classify("BookInn"), search("inn"), slots()])
    offered = [str(r.answer_schema) for r in context.requests]
    assert ["search_history" in o for o in offered] == [False, False, False, True, False]


def test_the_search_tool_is_gone_where_the_whole_history_is_shown() -> None:
    said = dialogue("the Heron", "ok", "in the north", "fine", "bye")
    answers = [
        classify("BookInn"),
        slots(),
        classify("BookInn"),
        slots(("area", "North")),
        search("x"),
        classify("none"),
    ]
    context = track(said, answers, history="whole")
    assert rules(context)[4] == ("action.unknown_tool",)
    shown = context.requests[4].messages[1].content
    lines = ["Earlier turns:", "User: the Heron", "System: ok", "User: in the north", "System: fine", "User: bye"]
    assert shown.splitlines()[-6:] == lines
    assert "search_history" not in context.requests[0].messages[0].content


def test_the_prompt_holds_what_the_step_needs() -> None:
    context = track(HELLO, [classify("BookInn"), slots(("colour", "red")), slots()])
    intents, first, again = (r.messages[0].content for r in context.requests)
    assert "- BookInn: Book a room" in intents and "Part of town" not in intents
    assert (
        "Part of town [North | South | Old Town]" in first and "Pick-up time" not in first and "- BookInn" not in first
    )
    assert "- OrderCab: Order a cab" in again and "Part of town" in again
    enums = str(context.requests[1].answer_schema)
    assert "area" in enums and "pickup" not in enums and "classify_intent" not in enums
    assert "classify_intent" in str(context.requests[2].answer_schema)


def test_static_text_comes_first_and_is_the_same_for_every_turn() -> None:
    said = dialogue("the Heron", "ok", "in the north")
    context = track(
        said, [classify("BookInn"), slots(("name", "the Heron")), classify("BookInn"), slots(("area", "North"))]
    )
    heads = [r.messages[0].content for r in context.requests]
    assert heads[0] == heads[2] and heads[1] == heads[3]
    shared = len(heads[0]) - len(heads[0].rpartition("\n\n")[2])
    assert heads[0][:shared] == heads[1][:shared] and shared > 800
    assert [m.role for m in context.requests[1].messages] == ["system", "user", "assistant", "user"]


def test_whole_schema_in_the_prompt() -> None:
    context = track(HELLO, [classify("BookInn"), slots()], definitions="whole")
    for request in context.requests:
        assert "Pick-up time" in request.messages[0].content and "- OrderCab" in request.messages[0].content


def test_candidates_are_the_services_of_the_dialogue_or_all() -> None:
    said = replace(HELLO, services=("inn",))
    listed = track(said, [classify("FindInn"), slots()])
    assert "OrderCab" not in listed.requests[0].messages[0].content
    everything = track(said, [classify("OrderCab"), slots(("to", "town"))], candidates="all")
    assert everything.traces[0].state == BeliefState({TO: "town"})


def test_slots_of_the_chosen_intents_only() -> None:
    context = track(HELLO, [classify("BookInn"), slots(("area", "North")), slots(("guests", "2"))], slots="intents")
    assert rules(context)[1] == ("action.intent_not_confirmed",)
    assert "Part of town" not in context.requests[1].messages[0].content


def test_the_whole_state_predicted() -> None:
    said = dialogue("the Heron, north", "ok", "not the Heron, and a cab to town")
    first = slots(("name", "the Heron"), ("area", "North"))
    context = track(
        said,
        [classify("BookInn"), first, classify("BookInn", "OrderCab"), slots(("area", "North"), ("to", "town"))],
        predict="state",
    )
    assert context.traces[1].state == BeliefState({AREA: "North", TO: "town"})
    assert context.traces[1].delta == {NAME: DELETE, TO: "town"}
    assert context.traces[1].first_proposal == {NAME: DELETE, TO: "town"}


def test_deletes() -> None:
    said = dialogue("the Heron", "ok", "no, any")
    answers = [
        classify("BookInn"),
        slots(("name", "the Heron")),
        classify("BookInn"),
        slots(("name", DELETE), ("area", DELETE)),
    ]
    context = track(said, answers, deletes=True)
    assert context.traces[1].state == BeliefState() and context.traces[1].delta == {NAME: DELETE}
    assert DELETE in context.requests[0].messages[0].content
    kept = track(said, [*answers, slots()])
    assert kept.traces[1].state == BeliefState({NAME: "the Heron"})
    assert DELETE not in kept.requests[0].messages[0].content


def inn(intent: str | None = "BookInn", **values: str) -> Frame:
    return Frame("inn", {slot: (value,) for slot, value in values.items()}, intent)


GOLD = dialogue(
    *("the Heron", "ok", "in the north", "fine", "thanks"),
    frames={
        0: (inn(name="the Heron"),),
        2: (inn(name="the Heron", area="North"),),
        4: (inn("NONE", name="the Heron", area="North"),),
    },
)


def test_gold_intents_leave_one_call_and_none_where_there_is_no_intent() -> None:
    context = track(GOLD, [slots(("name", "the Heron")), slots(("area", "North"))], gold_intents=True)
    assert [c.step for c in context.calls] == ["resolve_slots"] * 2
    assert [t.intents for t in context.traces] == [(IntentRef("inn", "BookInn"),)] * 2 + [()]
    assert "classify_intent" not in context.requests[0].messages[0].content
    refused = track(GOLD, [classify("BookInn"), slots(), slots()], gold_intents=True)
    assert rules(refused)[0] == ("action.unknown_tool",)


def test_gold_intents_without_annotated_intents_are_the_services_that_change() -> None:
    frames = {0: (inn(None, name="the Heron"),), 2: (inn(None, name="the Heron"), Frame("cab", {"to": ("town",)}))}
    said = dialogue("the Heron", "ok", "a cab to town", frames=frames)
    context = track(said, [slots(("name", "the Heron")), slots(("to", "town"))], gold_intents=True)
    assert [t.intents for t in context.traces] == [(IntentRef("inn", "FindInn"),), (IntentRef("cab", "OrderCab"),)]


def test_teacher_forcing_starts_each_turn_from_gold() -> None:
    answers = [
        classify("BookInn"),
        slots(("name", "the Ram")),
        classify("BookInn"),
        slots(("area", "South")),
        classify("none"),
    ]
    context = track(GOLD, answers, teacher_forcing=True)
    states = [t.state for t in context.traces]
    assert states[0] == BeliefState({NAME: "the Ram"})
    assert states[1] == BeliefState({NAME: "the Heron", AREA: "South"})
    assert states[2] == BeliefState({NAME: "the Heron", AREA: "North"})
    free = track(GOLD, answers)
    assert free.traces[1].state == BeliefState({NAME: "the Ram", AREA: "South"})


@pytest.mark.parametrize("setting", ["gold_intents", "teacher_forcing"])
def test_gold_variants_need_annotation(setting: str) -> None:
    with pytest.raises(DataError, match="no annotation"):
        track(HELLO, [classify("BookInn"), slots()], **{setting: True})


def test_one_pass_takes_two_answers_as_they_are() -> None:
    answers = [classify("BookInn"), slots(("name", "the inn"), ("area", "east"), ("pickup", "5pm"), ("colour", "red"))]
    context = track(HELLO, answers, loop=False)
    (trace,) = context.traces
    assert trace.outcome is Outcome.ACCEPTED and trace.fired == []
    assert trace.state == BeliefState({NAME: "the inn", AREA: "east", PICKUP: "5pm", SlotRef("inn", "colour"): "red"})
    assert [len(r.messages) for r in context.requests] == [2, 2]
    assert "search_history" not in context.requests[0].messages[0].content


def test_one_pass_goes_on_after_answers_it_cannot_use() -> None:
    said = dialogue("the Heron", "ok", "north")
    context = track(said, [classify("BookInn"), slots(), "hm", slots(("area", "North"))], loop=False)
    assert [t.outcome for t in context.traces] == [Outcome.ACCEPTED] * 2
    assert context.traces[1].state == BeliefState({AREA: "North"})
    (lost,) = track(HELLO, [classify("BookInn"), "hm"], loop=False).traces
    assert lost.outcome is Outcome.NOT_PARSABLE and lost.state == BeliefState()
    (idle,) = track(HELLO, [classify("BookInn"), classify("BookInn")], loop=False).traces
    assert idle.outcome is Outcome.FALLBACK
    (single,) = track(HELLO, [classify("none")], loop=False).traces
    assert single.outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PromptTooLong("9,000 tokens"), Outcome.PROMPT_TOO_LONG),
        (RequestRefused("filtered"), Outcome.FALLBACK),
        (LimitReached("calls used up"), Outcome.UNIT_LIMIT),
    ],
)
def test_an_error_of_one_turn_keeps_the_state_and_the_dialogue_goes_on(error: Exception, outcome: Outcome) -> None:
    script: Sequence[str | Exception] = [
        *(classify("BookInn"), slots(("name", "the Heron"))),
        *(classify("BookInn"), error),
        *(classify("BookInn"), slots(("area", "North"))),
    ]
    steps = iter(script)

    def answer(request: Request) -> str:
        step = next(steps)
        if isinstance(step, Exception):
            raise step
        return step

    context = track(dialogue("the Heron", "ok", "x", "ok", "north"), answer)
    assert [t.outcome for t in context.traces] == [Outcome.ACCEPTED, outcome, Outcome.ACCEPTED]
    assert context.traces[1].state == BeliefState({NAME: "the Heron"}) and context.traces[1].error == str(error)
    assert context.traces[2].state == BeliefState({NAME: "the Heron", AREA: "North"})


def test_a_chinese_dialogue_is_asked_in_chinese() -> None:
    said = dialogue("帮我在云上订座，要包间", "好的", "还是那家茶馆")
    answers = [
        classify("订座"),
        slots(("店名", "云上"), ("包间", "有")),
        classify("订座"),
        slots(("店名", "那家茶馆")),
        slots(),
    ]
    context = track(said, answers)
    assert context.traces[0].state == BeliefState({SlotRef("茶馆", "店名"): "云上", SlotRef("茶馆", "包间"): "有"})
    assert context.traces[1].outcome is Outcome.CORRECTED and context.traces[1].fired[0].rule == "coref.kind"
    prompt = context.requests[1].messages
    assert "槽位" in prompt[0].content and "用户：帮我在云上订座" in prompt[1].content
    assert "没有指明是哪一个" in context.requests[4].messages[-1].content
    assert [(s.start, s.end) for s in context.traces[0].support] == [(3, 5)]


def test_several_turns_of_one_side() -> None:
    turns = (
        Turn(Speaker.SYSTEM, "Welcome!"), Turn(Speaker.SYSTEM, "How can I help?"), Turn(Speaker.USER, "hi"),
        Turn(Speaker.USER, "the Heron"),
    )  # fmt: skip
    context = track(Dialogue("d", turns), [classify("none"), classify("BookInn"), slots(("name", "the Heron"))])
    assert [t.turn for t in context.traces] == [2, 3]
    assert "System: Welcome!\nHow can I help?\nUser: hi" in context.requests[0].messages[1].content
    assert "System: (nothing yet)\nUser: the Heron" in context.requests[1].messages[1].content


@pytest.mark.parametrize("protocol", ["json", "tools"])
def test_every_answer_schema_is_bounded_and_admits_the_right_answer(protocol: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    said = dialogue("the Heron", "ok", "north")
    answers = [classify("BookInn"), slots(("name", "the Heron")), classify("BookInn"), slots(("area", "North"))]
    context = track(said, answers, protocol=protocol)
    for request, answer in zip(context.requests, answers, strict=True):
        if protocol == "tools":
            assert request.answer_schema is None and len(request.tools) in (1, 2)
            continue
        assert request.answer_schema is not None
        bounded(request.answer_schema)
        jsonschema.validate(orjson.loads(answer), request.answer_schema)


def test_the_plugin_declares_what_it_predicts_and_all_it_may_say() -> None:
    assert registry.find("methods", "tracker") is PLUGIN
    assert PLUGIN.declares == {"state", "intent"} and PLUGIN.roles == ("main",)
    prompts = PLUGIN.prompts(PLUGIN.config(protocol="text"))
    assert {"tracker/en/system.txt", "tracker/zh/feedback.txt", "protocols/en/text.txt"} <= set(prompts)
    assert not any("json" in name for name in prompts)


def test_prompts_have_the_same_texts_in_both_languages() -> None:
    from dialoom.methods.tracker.scene import PROMPTS
    from dialoom.methods.tracker.validator import RULES
    from dialoom.prompt_files import entries, read_prompts

    texts = read_prompts(PROMPTS)
    for name in ("tools", "step", "feedback"):
        english, chinese = entries(texts[f"en/{name}"]), entries(texts[f"zh/{name}"])
        assert english.keys() == chinese.keys()
        for key, text in english.items():
            fields = {part.partition("}")[0] for part in text.split("{")[1:]}
            assert fields == {part.partition("}")[0] for part in chinese[key].split("{")[1:]}, key
    assert set(RULES) <= entries(texts["en/feedback"]).keys()
