"""Names of intents and slots: qualified only where needed, found however they are written."""

from __future__ import annotations

import pytest

from dialoom.methods.tracker.catalog import Catalog, IntentRef, SlotTable
from dialoom.schema import Schema, Service, Slot
from dialoom.state import SlotRef
from support.town import CAB, INN, TABLE, TOWN

CATALOG = Catalog(TOWN)


def test_a_slot_name_is_qualified_only_where_two_active_services_share_it() -> None:
    alone = CATALOG.slots_of_services(["inn"])
    assert alone.labels[SlotRef("inn", "guests")] == "guests"
    both = CATALOG.slots_of_services(["inn", "cab"])
    assert both.labels[SlotRef("inn", "guests")] == "inn-guests"
    assert both.labels[SlotRef("inn", "area")] == "area"


@pytest.mark.parametrize("name", ["inn-guests", "inn.guests", "Inn guests", "inn:guests", "INN/GUESTS", "inn_guests"])
def test_a_qualified_name_is_found_however_it_is_joined(name: str) -> None:
    assert CATALOG.slots.find(name) == (SlotRef("inn", "guests"),)


def test_a_bare_name_means_every_slot_that_has_it() -> None:
    assert CATALOG.slots.find("Guests") == (SlotRef("inn", "guests"), SlotRef("cab", "guests"))
    assert CATALOG.slots.find("店名") == (SlotRef("茶馆", "店名"),)
    assert CATALOG.slots.find("colour") == ()


def test_a_service_in_front_of_a_slot_name_may_be_left_out() -> None:
    table = SlotTable.of([Service("hotel", slots=(Slot("hotel-area"),)), Service("bar", slots=(Slot("bar-name"),))])
    assert table.labels[SlotRef("hotel", "hotel-area")] == "hotel-area"
    assert table.find("area") == table.find("hotel-area") == (SlotRef("hotel", "hotel-area"),)


def test_intents_that_services_share_are_qualified() -> None:
    assert CATALOG.intent_labels[IntentRef("inn", "FindInn")] == "inn-FindInn"
    assert CATALOG.intent_labels[IntentRef("inn", "BookInn")] == "BookInn"
    assert CATALOG.find_intent("bookinn") == (IntentRef("inn", "BookInn"),)
    assert CATALOG.find_intent("table-FindInn") == (IntentRef("table", "FindInn"),)
    assert len(CATALOG.find_intent("FindInn")) == 2
    assert CATALOG.find_intent("") == ()


def test_slots_of_intents_are_those_they_name_or_all_where_they_name_none() -> None:
    table = CATALOG.slots_of_intents([IntentRef("inn", "BookInn"), IntentRef("cab", "OrderCab")])
    assert {r.slot for r in table.slots if r.service == "inn"} == {"name", "guests"}
    assert {r.slot for r in table.slots if r.service == "cab"} == {"from", "to", "pickup", "guests"}


def test_services_come_once_and_in_the_order_of_the_schema() -> None:
    refs = [IntentRef("table", "BookTable"), IntentRef("inn", "FindInn"), IntentRef("inn", "BookInn")]
    assert CATALOG.services_of(refs) == ("inn", "table")


def test_one_service_needs_no_qualified_intents() -> None:
    catalog = Catalog(Schema("s", {s.name: s for s in (INN, CAB)}))
    assert list(catalog.intent_labels.values()) == ["FindInn", "BookInn", "OrderCab"]
    assert TABLE.name not in catalog.services
