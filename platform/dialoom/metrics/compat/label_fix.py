"""The label fix of TRADE, which T5DST has behind its ``--fix_label`` flag: corrections of gold values.

Source of the value pairs: what TRADE's ``fix_general_label_error`` changes. First a typo map for whole values of any of
the 30 slots, then rules by slot. Kept on purpose: the typo map also hits slots where the value was right ("pool" as a
name), "no" as an area becomes "north", hotel parking "free" stays while internet "free" becomes "yes".
"""

from __future__ import annotations

from functools import cache

from dialoom.metrics.compat.multiwoz import TRADE_SLOTS
from dialoom.state import SlotRef

_TYPOS = {
    "guest house": "guesthouse|guesthouses|guest",
    "multiple sports": "mutiple sports|sports|mutliple sports",
    "swimming pool": "swimmingpool|pool",
    "concert hall": "concerthall|concert",
    "nightclub": "night club",
    "museum": "mus|musuem",
    "architecture": "ol|architectural",
    "college": "colleges|coll",
    "church": "churches",
    "centre": "center|center of town|near city center|cen|ce|town center|centre of cambridge|city center|scentre"
    "|town centre|in town|centre of town",
    "north": "in the north|north part of town",
    "south": "the south",
    "east": "east side|east area",
    "west": "west part of town",
    "moderate": "mode|moderate -ly|mo",
    "friday": "next friday",
    "monday": "monda",
    "free": "free parking",
    "yes": "free internet|y",
    "no": "n|does not",
    "4": "4 star|4 stars",
    "3": "3 .",
    "dontcare": "any|does not care",
    "none": "|not men|not|not mentioned|not mendtioned|cb30aq|0 star rarting|fun|art",
}
TYPO_MAP = {typo: right for right, typos in _TYPOS.items() for typo in typos.split("|")}
"""Whole value to its correction, for any slot."""

_AREAS = "hotel-area|restaurant-area|attraction-area"
_DAYS = "hotel-book day|restaurant-book day|train-day"
_RULES: tuple[tuple[str, str, str], ...] = (
    (
        "hotel-type",
        "nigh|moderate -ly priced|bed and breakfast|centre|venetian|intern|a cheap -er hotel",
        "none",
    ),
    ("hotel-type", "hotel with free parking and free wifi|4|3 star hotel", "hotel"),
    ("hotel-internet", "4", "none"),
    ("hotel-internet", "free", "yes"),
    ("hotel-pricerange", "2", "none"),
    ("hotel-pricerange|restaurant-pricerange", "ch", "cheap"),
    ("attraction-type", "gastropub|la raza|galleria|gallery|science|m", "none"),
    (_AREAS, "moderate", "none"),
    (_AREAS, "no", "north"),
    (_AREAS, "we", "west"),
    (_AREAS, "cent", "centre"),
    (_DAYS, "t|no", "none"),
    (_DAYS, "we", "wednesday"),
    ("restaurant-area", "stansted airport|cambridge|silver street", "none"),
    ("attraction-area", "norwich|ely|museum|same area as hotel", "none"),
)
SLOT_RULES = {
    (slot, value): right for slots, values, right in _RULES for slot in slots.split("|") for value in values.split("|")
}
"""(TRADE slot name, value after the typo map) to its correction."""

_KNOWN = frozenset(f"{domain}-{slot}" for domain, slots in TRADE_SLOTS.items() for slot in slots)


@cache
def fix_label(ref: SlotRef, value: str) -> str:
    """The corrected gold value of a slot under TRADE's name; other slots' values stay as they are."""
    slot = f"{ref.service}-{ref.slot}"
    if slot not in _KNOWN:
        return value
    value = TYPO_MAP.get(value, value)
    return SLOT_RULES.get((slot, value), value)
