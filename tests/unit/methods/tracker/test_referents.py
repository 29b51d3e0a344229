"""Kinds and pointers against names of entities, in English and Chinese."""

from __future__ import annotations

import pytest

from dialoom.methods.tracker.referents import Referents, copied_name, is_dontcare, says_nothing, words
from dialoom.schema import Slot

REFERENTS = Referents(["inn", "guest house", "茶楼"])

KINDS = """restaurant|the hotel|The Hotel.|that restaurant|there|the same place|same place|same time|the same time
this one|it|an inn|inns|my guest house|the other hotel|the previous restaurant|hotel i booked
the restaurant you suggested|the hotel from before|at the hotel|to the station|the booked hotel|that place again
restaurants|any of the hotels|餐厅|那家餐厅|那里|同一个地方|同样的时间|这家酒店|之前订的酒店|刚才那家餐厅|从酒店
茶楼|那家茶楼|同一天|酒店那里|它"""
NAMES = """Heron Hotel|the oak bistro|The Restaurant at Sea|hotel aurora|place of stones|there goes the sun|it came late
New Alarm|one|two|riverside|12 Station Hill|the 8th|17:30|march 3rd|that old song|same old story|Work|station road
云上茶馆|上海滩餐厅|老酒店大街12号|那年花开|三点|同心堂|从前慢|第一人民医院|春秋茶楼|这里是北京|dontcare|42"""


@pytest.mark.parametrize("value", KINDS.replace("\n", "|").split("|"))
def test_these_name_no_entity(value: str) -> None:
    assert REFERENTS.is_kind(value)


@pytest.mark.parametrize("value", NAMES.replace("\n", "|").split("|"))
def test_these_are_entities(value: str) -> None:
    assert not REFERENTS.is_kind(value)


def test_the_kinds_of_a_schema_count() -> None:
    assert REFERENTS.is_kind("the inn") and not Referents().is_kind("the inn")


@pytest.mark.parametrize(
    "name", ["type", "hotel-type", "food", "cuisine_kind", "genre", "restaurant-food", "房间类型", "菜系"]
)
def test_slots_that_ask_for_a_kind_are_left_alone(name: str) -> None:
    assert REFERENTS.may_be_kind(Slot(name))


@pytest.mark.parametrize("name", ["name", "destination", "classic", "mistype_name", "地址"])
def test_other_slots_are_not(name: str) -> None:
    assert not REFERENTS.may_be_kind(Slot(name))


def test_categorical_slots_take_kinds() -> None:
    assert REFERENTS.may_be_kind(Slot("house", is_categorical=True))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("same as inn-name", "inn-name"),
        ("The same as  inn-name.", "inn-name"),
        ("与店名相同", "店名"),
        ("和店名一样", "店名"),
        ("同店名", "店名"),
        ("inn-name", None),
        ("sameas", None),
    ],
)
def test_copies(value: str, name: str | None) -> None:
    assert copied_name(value) == name


def test_small_answers() -> None:
    assert is_dontcare("dontcare") and is_dontcare("Don't  care") and is_dontcare("都可以") and not is_dontcare("any")
    assert says_nothing("") and says_nothing(" None ") and says_nothing("未提及") and not says_nothing("no")


def test_no_word_is_in_two_minds() -> None:
    lists = words()
    assert not lists.kinds & lists.dontcare and not lists.kinds & lists.no_value
