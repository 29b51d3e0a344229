"""Names of MultiWOZ slots as the evaluators of the field spell them."""

from __future__ import annotations

import re
from functools import cache

from dialoom.state import SlotRef

TRADE_SLOTS: dict[str, tuple[str, ...]] = {
    "hotel": (
        "pricerange",
        "type",
        "parking",
        "book stay",
        "book day",
        "book people",
        "area",
        "stars",
        "internet",
        "name",
    ),
    "train": ("destination", "day", "departure", "arriveby", "book people", "leaveat"),
    "attraction": ("area", "name", "type"),
    "restaurant": ("food", "pricerange", "area", "name", "book time", "book day", "book people"),
    "taxi": ("leaveat", "destination", "departure", "arriveby"),
}
"""The 30 slots of five domains that TRADE and its successors track."""

DOMAINS = tuple(TRADE_SLOTS)
_SHORT = {"arrive": "arriveby", "leave": "leaveat", "price": "pricerange"}
_NO_LETTER = re.compile(r"[^a-z]")


def bare_name(ref: SlotRef) -> str:
    """The slot's name without its domain before a "-"."""
    prefix = f"{ref.service}-"
    return ref.slot[len(prefix) :] if ref.slot.lower().startswith(prefix.lower()) else ref.slot


@cache
def trade_slot(ref: SlotRef) -> SlotRef:
    """The slot under TRADE's name (``book day``, ``arriveby``), whatever spelling it has; unknown slots stay."""
    domain = ref.service.lower()
    letters = _NO_LETTER.sub("", bare_name(ref).lower())
    known = {_NO_LETTER.sub("", name): name for name in TRADE_SLOTS.get(domain, ())}
    for candidate in (letters, _SHORT.get(letters, ""), f"book{letters}"):
        if candidate in known:
            return SlotRef(domain, known[candidate])
    return SlotRef(domain, bare_name(ref))
