"""History retrieval: the turn that is meant comes first, in English and Chinese, ten turns back too."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Speaker
from dialoom.methods.tracker.history import QUOTE, History, quote
from dialoom.methods.tracker.retrieval import TurnIndex, terms
from dialoom.state import SlotRef
from support.town import TOWN

CAFE = """I'd like a room for two nights.|In which part of town?
Somewhere near the harbour would be lovely.|The Heron is close to the harbour and has rooms.
Does it take dogs?|Yes, dogs are welcome for a small fee.
Good. And I want dinner tonight.|What would you like to eat?
Fish, if there is any.|The Blue Mussel serves fresh fish.
Can I get a table for four there at half past seven?|Your table at the Blue Mussel is booked.
What is the weather going to be?|Light rain in the evening.
Then I'll need an umbrella, haha.|Anything else?
Is there a museum for children?|The Clockwork Museum opens at ten.
How much are tickets?|Eight euros for adults, four for children.
Fine, two adults and two children.|I have put the tickets aside."""
TRIP = """你好，我想订一个房间，住两晚。|请问您想住在哪个区？
靠近西湖的就行。|云栖客栈离西湖很近，还有空房。
可以带狗吗？|可以，宠物需要加一点费用。
好的。今晚还想吃饭。|您想吃什么？
想吃鱼。|江南渔家的鱼很新鲜。
帮我在那里订四个人的位子，七点半。|江南渔家的位子已经订好了。
明天天气怎么样？|晚上有小雨。
那得带伞了。|还需要别的吗？
有适合孩子的博物馆吗？|钟表博物馆十点开门。
门票多少钱？|成人八十，儿童四十。
好，两个大人两个孩子。|票已经留好了。"""


def indexed(text: str) -> TurnIndex:
    index = TurnIndex()
    for number, turn in enumerate(turn for line in text.splitlines() for turn in line.split("|")):
        index.add(number, turn)
    return index


@pytest.mark.parametrize(
    ("text", "query", "turns"),
    [
        (CAFE, "the restaurant with fish", {8, 9}),
        (CAFE, "table booked", {10, 11}),
        (CAFE, "name of the hotel near the harbour", {2, 3}),
        (CAFE, "museum", {16, 17}),
        (CAFE, "does the room take dogs", {4, 5}),
        (TRIP, "吃鱼的餐厅", {8, 9}),
        (TRIP, "订好的位子", {10, 11}),
        (TRIP, "西湖附近的客栈", {2, 3}),
        (TRIP, "博物馆", {16, 17}),
        (TRIP, "宠物 狗", {4, 5}),
    ],
)
def test_the_turn_that_is_meant_is_found(text: str, query: str, turns: set[int]) -> None:
    found = [f.turn for f in indexed(text).search(query)]
    assert found and found[0] in turns
    assert len(found) <= 3


def history(text: str, changes: dict[int, dict[SlotRef, str]]) -> History:
    made = History(TOWN.services)
    for number, turn in enumerate(turn for line in text.splitlines() for turn in line.split("|")):
        made.add(number, Speaker.SYSTEM if number % 2 else Speaker.USER, turn)
        made.change(changes.get(number, {}))
    return made


@pytest.mark.parametrize("query", ["the inn", "that pension", "inn name", "the Heron"])
def test_what_a_turn_set_finds_it_ten_turns_back(query: str) -> None:
    made = history(CAFE, {4: {SlotRef("inn", "name"): "The Heron"}, 10: {SlotRef("table", "name"): "Blue Mussel"}})
    best = made.search(query, before=20)[0]
    assert best.turn == 4 or "Heron" in best.text
    assert 20 - best.turn >= 10


@pytest.mark.parametrize("query", ["那家茶楼", "茶馆的店名", "之前的茶馆"])
def test_so_does_a_chinese_query(query: str) -> None:
    made = history(TRIP, {6: {SlotRef("茶馆", "店名"): "云上"}})
    assert made.search(query, before=20)[0].turn == 6


def test_turns_that_the_prompt_shows_are_not_searched_until_they_are_history() -> None:
    made = history(CAFE, {})
    assert {s.turn for s in made.search("museum", before=16)} == set()
    assert made.search("museum", before=18)[0].turn in (16, 17)


def test_nothing_is_found_for_words_never_said_and_for_no_words() -> None:
    made = history(CAFE, {})
    assert (
        made.search("helicopter", before=99) == made.search("the of", before=99) == made.search("!?", before=99) == []
    )
    assert History(TOWN.services).search("museum", before=9) == []


def test_terms_of_any_script() -> None:
    assert terms("The restaurants, please!") == ["restaurant"]
    assert terms("西湖附近") == ["西湖", "湖附", "附近", "西", "湖", "附", "近"]
    assert terms("Zürich Straße 5") == ["zürich", "strasse", "5"]
    assert terms("ラーメン") and terms("ร้านอาหาร") and terms("ресторан") == ["ресторан"]
    assert terms("我在Heron吃") == ["我在", "heron", "吃"]


def test_a_quote_is_short_and_holds_the_place() -> None:
    long = "x " * 50_000 + "the Blue Mussel is here" + " y" * 50_000
    shown = quote(long, "blue mussel")
    assert "Blue Mussel" in shown and len(shown) <= QUOTE + 2
    assert quote("a\nb", "b") == "a b"


def test_a_turn_of_200_000_characters_costs_little() -> None:
    made = history("word " * 40_000 + "|ok", {})
    start = time.process_time()
    made.search("word", before=9)
    assert time.process_time() - start < 2


texts = st.text(max_size=40) | st.sampled_from(CAFE.split("|")) | st.sampled_from(TRIP.split("|"))


@given(st.lists(texts, max_size=12), texts, st.integers(0, 12))
def test_searching_between_turns_changes_nothing(turns: list[str], query: str, early: int) -> None:
    whole, piecewise = TurnIndex(), TurnIndex()
    for number, turn in enumerate(turns):
        whole.add(number, turn)
        piecewise.add(number, turn)
        if number == early:
            piecewise.search(query)
    found = whole.search(query, limit=99)
    assert found == piecewise.search(query, limit=99)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    assert {f.turn for f in found} == {n for n, t in enumerate(turns) if set(terms(t)) & set(terms(query))}
