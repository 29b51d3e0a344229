"""The validator: every rule, the forms it writes, and that a proposal is taken as a whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.methods.tracker.catalog import Catalog, IntentRef
from dialoom.methods.tracker.forms import MAX_VALUE
from dialoom.methods.tracker.proposal import Malformed, Pair, read_intents, read_query, read_slots, usable_slots
from dialoom.methods.tracker.validator import RULES, Rules, Validator, Verdict, as_proposed
from dialoom.schema import Schema
from dialoom.state import DELETE, SlotRef
from support.shared import ROOT
from support.town import TOWN

CATALOG = Catalog(TOWN)
ALL = Validator(CATALOG)
KNOWN = {SlotRef("inn", "name"): "The Ram", SlotRef("table", "time"): "19:30", SlotRef("inn", "area"): "North"}


def check(
    name: str, value: str, *, source: str = "", active: str = "inn", validator: Validator = ALL, **known: str
) -> str | list[str]:
    """The value written, or the rules that fired."""
    verdict = validator.slots([Pair(name, value, source)], CATALOG.slots_of_services(active.split()), KNOWN)
    if verdict.problems:
        assert not verdict.delta
        return [p.rule for p in verdict.problems]
    return next(iter(verdict.delta.values()), "(none)")


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("area", "North", "North"),
        ("area", "north", "North"),
        ("area", " old  TOWN ", "Old Town"),
        ("area", "oldtown", "Old Town"),
        ("area", "Old Towns", ["schema.categorical"]),
        ("area", "east", ["schema.categorical"]),
        ("type", "guesthouse", "guest house"),
        ("type", "hotel", "hotel"),
        ("wifi", "yes", "yes"),
        ("wifi", "TRUE", "True"),
        ("wifi", "free", ["schema.type"]),
        ("guests", "4", "4"),
        ("guests", "４", "4"),
        ("guests", "four", ["schema.type"]),
        ("guests", "4.0", ["schema.type"]),
        ("guests", "-4", ["schema.type"]),
        ("arrival", "2024-02-29", "2024-02-29"),
        ("arrival", "2023-02-29", ["schema.type"]),
        ("arrival", "20240229", ["schema.type"]),
        ("weekday", "Friday", "friday"),
        ("weekday", "next friday", ["schema.type"]),
        ("name", "The Ram & Sons", "The Ram & Sons"),
        ("name", "x" * MAX_VALUE, "x" * MAX_VALUE),
        ("name", "x" * (MAX_VALUE + 1), ["schema.type"]),
        ("name", "the inn", ["coref.kind"]),
        ("name", "那家酒店", ["coref.kind"]),
        ("name", "Name of the inn", ["coref.kind"]),
        ("name", "Rooms in town", ["coref.kind"]),
        ("guests", "the same time", ["coref.kind"]),
        ("area", "there", ["schema.categorical"]),
        ("colour", "red", ["schema.unknown_slot"]),
        ("pickup", "17:30", ["action.intent_not_confirmed"]),
        ("name", "dontcare", "dontcare"),
        ("area", "Don't care", "dontcare"),
        ("weekday", "都可以", "dontcare"),
        ("name", "none", "(none)"),
        ("area", "", "(none)"),
        ("name", "...", "(none)"),
        ("colour", "not mentioned", "(none)"),
        ("name", DELETE, ["schema.type"]),
        ("area", DELETE, ["schema.categorical"]),
    ],
)
def test_one_value(name: str, value: str, result: object) -> None:
    assert check(name, value) == result


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        *((time, True) for time in ("17:30", "00:00", "23:59", "１７：３０")),
        *((time, False) for time in ("5:30pm", "5:30", "24:00", "17:60", "1730", "17:30:00", "at 17:30", "٢٣:٠٠")),
    ],
)
def test_times_are_hours_and_minutes(value: str, fits: bool) -> None:
    assert check("pickup", value, active="cab") == (
        value.translate(str.maketrans("１７３０：", "1730:")) if fits else ["schema.type"]
    )


def test_a_name_that_active_services_share_must_be_qualified() -> None:
    assert check("guests", "4", active="inn cab") == ["schema.ambiguous_slot"]
    assert check("cab-guests", "4", active="inn cab") == "4"


def test_no_value_stays_where_a_slot_lists_it() -> None:
    assert check("包间", "没有", active="茶馆") == "没有"
    assert check("店名", "没有", active="茶馆") == "(none)"


@pytest.mark.parametrize(
    ("name", "value", "source", "result"),
    [
        ("to", "inn-name", "", "The Ram"),
        ("to", "same as inn-name", "", "The Ram"),
        ("to", "the same as the_ram", "", "the same as the_ram"),
        ("pickup", "table-time", "", "19:30"),
        ("pickup", "same as time", "", "19:30"),
        ("to", "table-name", "", ["coref.copy"]),
        ("to", "cuisine", "", ["coref.copy"]),
        ("to", "The Ram", "inn-name", "The Ram"),
        ("to", "the ram", "inn-name", "The Ram"),
        ("to", "", "inn-name", "The Ram"),
        ("to", "The Goat", "inn-name", ["coref.copy"]),
        ("to", "The Goat", "table-name", ["coref.copy"]),
        ("to", "The Goat", "the user", "The Goat"),
        ("pickup", "The Ram", "inn-name", ["schema.type"]),
        ("to", "to", "", "to"),
    ],
)
def test_copies_equal_their_source(name: str, value: str, source: str, result: object) -> None:
    assert check(name, value, source=source, active="cab") == result


def test_a_copy_may_come_from_the_same_proposal() -> None:
    table = CATALOG.slots_of_services(["inn", "cab"])
    pairs = [Pair("name", "The Goat"), Pair("to", "inn-name")]
    assert ALL.slots(pairs, table, KNOWN).delta == {
        SlotRef("inn", "name"): "The Goat",
        SlotRef("cab", "to"): "The Goat",
    }
    circle = [Pair("from", "to"), Pair("to", "from")]
    assert [p.rule for p in ALL.slots(circle, table, {}).problems] == ["coref.copy", "coref.copy"]


def test_problems_name_slot_value_and_what_is_allowed() -> None:
    table = CATALOG.slots_of_services(["inn"])
    (problem,) = ALL.slots([Pair("area", "east")], table, {}).problems
    assert (problem.label, problem.value, problem.allowed) == ("area", "east", ("North", "South", "Old Town"))
    (problem,) = ALL.slots([Pair("nmae", "x")], table, {}).problems
    assert "name" in problem.allowed
    (problem,) = ALL.slots([Pair("pickup", "x")], table, {}).problems
    assert problem.allowed == ("cab",) and problem.ref == SlotRef("cab", "pickup")
    (problem,) = ALL.slots([Pair("to", "The Goat", "inn-name")], CATALOG.slots_of_services(["cab"]), KNOWN).problems
    assert problem.allowed == ("The Ram",)


def test_one_bad_value_rejects_the_whole_proposal() -> None:
    table = CATALOG.slots_of_services(["inn"])
    verdict = ALL.slots([Pair("area", "North"), Pair("guests", "four"), Pair("colour", "red")], table, {})
    assert verdict.delta == {}
    assert [p.rule for p in verdict.problems] == ["schema.unknown_slot", "schema.type"]


def test_a_slot_given_twice() -> None:
    table = CATALOG.slots_of_services(["inn"])
    same = [Pair("area", "North"), Pair("inn-area", "north")]
    assert ALL.slots(same, table, {}).delta == {SlotRef("inn", "area"): "North"}
    assert [p.rule for p in ALL.slots([*same, Pair("area", "South")], table, {}).problems] == ["action.malformed"]


def test_each_family_can_be_off() -> None:
    no_schema = Validator(CATALOG, Rules(schema=False))
    assert check("area", "east", validator=no_schema) == "east"
    assert check("guests", "four", validator=no_schema) == "four"
    assert check("colour", "red", validator=no_schema) == "red"
    assert check("name", "the inn", validator=no_schema) == ["coref.kind"]
    assert check("pickup", "17:30", validator=no_schema) == ["action.intent_not_confirmed"]
    no_coref = Validator(CATALOG, Rules(coref=False))
    assert check("name", "the inn", validator=no_coref) == "the inn"
    assert check("to", "inn-name", active="cab", validator=no_coref) == "inn-name"
    no_action = Validator(CATALOG, Rules(action=False))
    assert check("pickup", "17:30", validator=no_action) == "17:30"
    assert check("pickup", "5pm", validator=no_action) == ["schema.type"]


def test_deletes_are_a_variant() -> None:
    deletes = Validator(CATALOG, deletes=True)
    assert check("area", DELETE, validator=deletes) == DELETE
    assert check("guests", DELETE, validator=deletes) == DELETE


def test_dontcare_is_no_value_where_the_data_does_not_have_it() -> None:
    strict = Validator(Catalog(Schema("s", TOWN.services, dontcare=False)))
    assert check("name", "dontcare", validator=strict) == ["schema.type"]
    assert check("area", "dontcare", validator=strict) == ["schema.categorical"]


class Said:
    """Evidence of one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def holds(self, value: str) -> bool:
        return value in self._text


def test_grounding_asks_for_free_text_only() -> None:
    grounded = Validator(CATALOG, Rules(ground=True))
    table = CATALOG.slots_of_services(["inn", "cab"])

    def fired(*pairs: Pair) -> list[str]:
        return [p.rule for p in grounded.slots(pairs, table, KNOWN, Said("to The Goat please")).problems]

    assert fired(Pair("name", "The Goat"), Pair("area", "North"), Pair("pickup", "17:30"), Pair("to", "dontcare")) == []
    assert fired(Pair("to", "The Hind"), Pair("name", "The Ram")) == ["ground.untraceable"]
    assert fired(Pair("to", "the ram")) == []


def test_intents() -> None:
    assert ALL.intents(["BookInn", "bookinn"]) == ((IntentRef("inn", "BookInn"),), ())
    found, problems = ALL.intents(["BookInn", "OrderPizza"])
    assert found == () and [p.rule for p in problems] == ["schema.unknown_intent"]
    (problem,) = ALL.intents(["FindInn"])[1]
    assert problem.allowed == ("inn-FindInn", "table-FindInn")
    assert Validator(CATALOG, Rules(schema=False)).intents(["BookInn", "OrderPizza"]) == (
        (IntentRef("inn", "BookInn"),),
        (),
    )


def test_a_proposal_as_it_was_keeps_what_no_schema_has() -> None:
    table = CATALOG.slots_of_services(["inn"])
    pairs = [
        Pair("area", "east"),
        Pair("pickup", "5pm"),
        Pair("cab-colour", "red"),
        Pair("colour", "red"),
        Pair("name", "none"),
    ]
    both = CATALOG.slots_of_services(["inn", "cab"])
    assert as_proposed(pairs, both, CATALOG.slots) == {
        SlotRef("inn", "area"): "east",
        SlotRef("cab", "pickup"): "5pm",
        SlotRef("cab", "colour"): "red",
        SlotRef("inn", "colour"): "red",
    }
    assert as_proposed(pairs[1:2], table, CATALOG.slots) == {SlotRef("cab", "pickup"): "5pm"}


def test_arguments_are_read_in_each_form() -> None:
    pairs = [Pair("area", "North"), Pair("guests", "4")]
    assert read_slots({"slots": [{"slot": "area", "value": " North "}, {"slot": "guests", "value": 4}]}) == pairs
    assert (
        read_slots({"slots": {"area": "North", "guests": 4}}) == read_slots({"area": ["North"], "guests": "4"}) == pairs
    )
    assert read_slots({"slots": []}) == read_slots({}) == []
    assert read_slots({"slots": [{"slot": "to", "value": None, "from": "inn-name"}]}) == [Pair("to", "", "inn-name")]
    for wrong in (
        "area",
        [["area", "North"]],
        [{"slot": "area", "value": ["a", "b"]}],
        [{"value": "x"}],
        {"a": {"b": 1}},
    ):
        assert isinstance(read_slots({"slots": wrong}), Malformed)
    assert usable_slots({"slots": [{"value": "x"}, {"slot": "area", "value": "North"}]}) == [Pair("area", "North")]
    assert usable_slots({"slots": "area"}) == []
    assert read_intents({"intents": ["none"]}) == read_intents({"intents": []}) == []
    assert read_intents({"intents": "BookInn"}) == read_intents({"intent": ["BookInn", "None"]}) == ["BookInn"]
    assert isinstance(read_intents({"intents": [1]}), Malformed) and isinstance(read_intents({}), Malformed)
    assert read_query({"query": " ram "}) == "ram" and isinstance(read_query({"query": "  "}), Malformed)


names = st.sampled_from([*CATALOG.slots.labels.values(), "guests", "area", "colour", "cab-colour", ""]) | st.text(
    max_size=9
)
said = st.sampled_from(
    ["North", "17:30", "4", "there", "inn-name", "same as to", "none", "dontcare", DELETE]
) | st.text(max_size=12)
proposals = st.lists(st.builds(Pair, names, said, st.just("") | names), max_size=5)
families = st.builds(Rules, st.booleans(), st.booleans(), st.booleans(), st.booleans())
actives = st.lists(st.sampled_from(list(TOWN.services)), unique=True)


@given(proposals, families, actives, st.booleans())
def test_any_proposal_has_one_verdict(pairs: list[Pair], rules: Rules, active: list[str], deletes: bool) -> None:
    table = CATALOG.slots_of_services(active)
    validator = Validator(CATALOG, rules, deletes=deletes)
    verdict = validator.slots(pairs, table, KNOWN, Said("North"))
    assert verdict == validator.slots(pairs, table, KNOWN, Said("North"))
    assert not (verdict.delta and verdict.problems)
    on = {name for name in ("action", "schema", "coref", "ground") if getattr(rules, name)}
    assert {p.rule.partition(".")[0] for p in verdict.problems} <= on
    assert {p.rule for p in verdict.problems} <= set(RULES)
    if rules.schema and rules.action:
        assert set(verdict.delta) <= set(table.slots)


@given(proposals, actives)
def test_what_was_accepted_is_accepted_again_and_unchanged(pairs: list[Pair], active: list[str]) -> None:
    table = CATALOG.slots_of_services(active)
    verdict = ALL.slots(pairs, table, KNOWN)
    again = ALL.slots([Pair(f"{r.service}-{r.slot}", v) for r, v in verdict.delta.items()], table, {})
    assert verdict.problems or again == Verdict(verdict.delta)


def test_the_documentation_lists_every_rule() -> None:
    lines = (ROOT / "docs" / "tracker.md").read_text(encoding="utf-8").splitlines()
    documented = [line.split("`")[1] for line in lines if line.startswith("| `") and line.split("`")[1] in RULES]
    assert documented == list(RULES)
