"""The schema check: each finding from the smallest schema that has it, and none from a good one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.schema import Intent, Schema, Service, Slot, SlotType
from dialoom.schema_check import LEVELS, Finding, check_schema
from dialoom.schema_files import load_schema
from support.shared import ROOT, shared_path

AREA = Slot("area", "Part of town the place is in", True, ("north", "south"))
TITLE = Slot("title", "Proper name of the place")
FIND = Intent("find", "Look for a place", optional_slots={"area": "dontcare", "title": "dontcare"})
CAFE = Service("cafe", "Find a place to drink coffee", (AREA, TITLE), (FIND,))


def findings(*services: Service, dontcare: bool = True) -> list[Finding]:
    return check_schema(Schema("s", {s.name: s for s in services}, dontcare))


def with_slot(slot: Slot) -> Service:
    """The good service with one slot more, which its intent takes."""
    intent = replace(FIND, optional_slots={**FIND.optional_slots, slot.name: "dontcare"})
    return replace(CAFE, slots=(*CAFE.slots, slot), intents=(intent,))


def test_a_good_schema_has_no_findings() -> None:
    assert findings(CAFE) == []
    assert check_schema(load_schema(ROOT / "schemas" / "sample.yaml")) == []
    (only,) = check_schema(load_schema(ROOT / "schemas" / "multiwoz.yaml"))
    assert (only.level, only.slot, only.what) == ("note", "police-name", "categorical with a single value")


D = "What the user wants to have here"
OF_SLOTS = [
    (Slot("x"), "warning", "the slot has no description"),
    (Slot("seat_map", "Seat map"), "note", "the description only repeats the name"),
    (Slot("place", "proper name  of the PLACE"), "warning", "slots 'title', 'place' have the same description"),
    (Slot("Area", D), "warning", "slots 'area', 'Area' differ only in case or punctuation"),
    (Slot("x", D, True), "error", "categorical, but without values: no value can be right"),
    (Slot("x", D, True, ("a",)), "note", "categorical with a single value"),
    (Slot("x", D, True, tuple(map(str, range(61)))), "note", "61 values stand in every prompt"),
    (Slot("x", D, True, ("a b", "A-B", "c")), "warning", "values 'a b', 'A-B' are the same once normalised"),
    (Slot("x", D, False, ("a", "A")), "note", "values 'a', 'A' are the same once normalised"),
    (Slot("x", D, True, ("a", " ")), "warning", "value ' ' is empty or has blanks around it"),
    (Slot("x", D, True, ("a", "b ")), "warning", "value 'b ' is empty or has blanks around it"),
    (Slot("x", D, True, ("a", "Don't care")), "note", "value 'Don't care' says that the user has no preference"),
    (Slot("x", D, True, ("9:00", "10:00"), SlotType.TIME), "error", "value '9:00' does not fit type time"),
    (Slot("x", D, False, ("24:00",), SlotType.TIME), "warning", "value '24:00' does not fit type time"),
    (Slot("x", D, True, ("one", "2"), SlotType.INTEGER), "error", "value 'one' does not fit type integer"),
    (Slot("x", D, True, ("Monday", "friday"), SlotType.DAY), "error", "value 'Monday' does not fit type day"),
    (Slot("x", D, False, ("2024-13-01",), SlotType.DATE), "warning", "value '2024-13-01' does not fit type date"),
    (Slot("x", D, True, ("a", "b", "c"), SlotType.BOOLEAN), "error", "value 'a' does not fit type boolean"),
    (Slot("opening_time", D), "note", "no type is given and none can be inferred; the name reads like time"),
    (Slot("taxi-leaveAt", D), "note", "no type is given and none can be inferred; the name reads like time"),
    (Slot("visitDate", D), "note", "no type is given and none can be inferred; the name reads like date"),
    (Slot("number_of_seats", D), "note", "no type is given and none can be inferred; the name reads like integer"),
    (Slot("hotel-bookday", D), "note", "no type is given and none can be inferred; the name reads like day"),
    (Slot("用餐时间", D), "note", "no type is given and none can be inferred; the name reads like time"),
    (Slot("my slot", D), "warning", "the slot's name is not an identifier"),
    (Slot("a:b", D), "warning", "the slot's name is not an identifier"),
    (Slot("s" * 65, D), "warning", "the slot's name is longer than 64 characters"),
]


@pytest.mark.parametrize(("slot", "level", "what"), OF_SLOTS)
def test_findings_about_a_slot(slot: Slot, level: str, what: str) -> None:
    found = findings(with_slot(slot))
    assert (level, what) in [(f.level, f.what) for f in found]
    assert all(f.service == "cafe" and f.hint for f in found)


@pytest.mark.parametrize(
    "slot",
    [
        Slot("餐馆名称", D),
        Slot("hotel-book_day2", D, False, (), SlotType.DAY),
        Slot("has_wifi", D, True, ("True", "False"), SlotType.BOOLEAN),
        Slot("单间", D, True, ("要", "不要"), SlotType.BOOLEAN),
        Slot("x", D, True, ("09:00", "23:59"), SlotType.TIME),
        Slot("price_per_day", D),
        Slot("x", D, False, ("a", "b")),
    ],
)
def test_what_is_fine_about_a_slot(slot: Slot) -> None:
    assert findings(with_slot(slot)) == []


def test_dontcare_in_a_list_is_fine_where_the_data_do_not_allow_it_everywhere() -> None:
    slot = Slot("x", D, True, ("a", "dontcare"))
    assert len(findings(with_slot(slot))) == 1
    assert findings(with_slot(slot), dontcare=False) == []


def cafe(*intents: Intent, slots: tuple[Slot, ...] = CAFE.slots) -> Service:
    return replace(CAFE, intents=intents, slots=slots)


BOOK = Intent("book", "Book a table there", optional_slots={"area": "north"})
OF_SERVICES = [
    (replace(CAFE, description=" "), "warning", "", "the service has no description"),
    (cafe(), "error", "", "the service has no intent"),
    (cafe(Intent("find", "Look for a place"), slots=()), "note", "", "the service has no slot"),
    (cafe(replace(FIND, description="")), "warning", "find", "the intent has no description"),
    (cafe(FIND, replace(FIND, name="a")), "warning", "find", "intents 'find', 'a' have the same description"),
    (cafe(replace(FIND, name="None")), "error", "None", "the intent is named as the word for no intent"),
    (cafe(BOOK), "note", "title", "no intent takes or gives the slot"),
    (cafe(FIND, BOOK), "note", "area", "intents share the slot with other defaults: 'dontcare', 'north'"),
    (replace(CAFE, name="my cafe"), "warning", "", "the service's name is not an identifier"),
]


@pytest.mark.parametrize(("service", "level", "slot", "what"), OF_SERVICES)
def test_findings_about_a_service(service: Service, level: str, slot: str, what: str) -> None:
    assert (level, slot, what) in [(f.level, f.slot, f.what) for f in findings(service)]


def bar(**changes: object) -> Service:
    """A second service that shares nothing with the first but what is given."""
    base = Service("bar", "Find a place to drink beer", (Slot("brand", D),), (Intent("drink", "Look for a bar"),))
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "level", "what"),
    [
        (bar(), None, ""),
        (
            bar(description="find a place to drink COFFEE"),
            "warning",
            "services 'cafe', 'bar' have the same description",
        ),
        (bar(intents=(Intent("find", "Look for a bar"),)), "note", "services 'cafe', 'bar' all have this intent"),
        (
            bar(intents=(Intent("drink", "look for a place"),)),
            "warning",
            "intents 'cafe.find', 'bar.drink' have the same description",
        ),
        (bar(slots=(replace(AREA, description="Anything else"),)), None, ""),
        (
            bar(slots=(replace(AREA, values=("left", "right")),)),
            "warning",
            "services 'cafe', 'bar' share the slot, but some have no value in common",
        ),
        (
            bar(slots=(replace(AREA, is_categorical=False),)),
            "warning",
            "services 'cafe', 'bar' share the slot, but not all with a closed list of values",
        ),
        (
            bar(slots=(replace(TITLE, type=SlotType.INTEGER),)),
            "warning",
            "services 'cafe', 'bar' share the slot, but with other types: text and integer",
        ),
        (
            bar(slots=(Slot("title", "How one addresses a guest"),)),
            "note",
            "services 'cafe', 'bar' share the slot, but some descriptions have no word in common",
        ),
    ],
)
def test_findings_between_services(other: Service, level: str | None, what: str) -> None:
    found = findings(CAFE, other)
    assert [(f.level, f.what) for f in found] == ([] if level is None else [(level, what)])


NAMES = st.sampled_from(["a", "A", "b c", "time", "区域", "", "dontcare"])
SLOTS = st.builds(
    Slot, NAMES, NAMES, st.booleans(), st.lists(NAMES, max_size=3).map(tuple), st.sampled_from(list(SlotType))
)
INTENTS = st.builds(Intent, NAMES, NAMES, optional_slots=st.dictionaries(NAMES, NAMES, max_size=2))
SERVICES = st.builds(
    Service, NAMES, NAMES, st.lists(SLOTS, max_size=3).map(tuple), st.lists(INTENTS, max_size=2).map(tuple)
)


@given(st.lists(SERVICES, max_size=3))
def test_findings_are_sorted_unique_and_the_same_each_time(services: list[Service]) -> None:
    found = findings(*services)
    assert found == findings(*services)
    assert len(set(found)) == len(found)
    keys = [(LEVELS.index(f.level), f.service, f.slot, f.what) for f in found]
    assert keys == sorted(keys)


@pytest.mark.shared
def test_the_public_schemas_show_what_is_known_of_them() -> None:
    found = check_schema(load_schema(shared_path("sgd", "test", "schema.json")))
    assert not [f for f in found if f.level == "error"]
    assert [f.slot for f in found if f.level == "warning"] == ["category", "category"]
    found = check_schema(load_schema(shared_path("multiwoz", "mwz22_schema.json")))
    assert {f.slot for f in found if "no intent takes" in f.what} >= {"hotel-phone", "taxi-type", "train-trainid"}
