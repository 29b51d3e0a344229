"""Values that name a kind of thing or point backwards ("the hotel", "there", "那家餐厅"), from small word lists.

The lists are in ``words/<language>.txt``; all languages apply at once, so nothing hangs on detecting the language. The
words that a schema gives for a service (``Service.kinds``) join them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from dialoom.methods.tracker.word_lists import word_lists
from dialoom.schema import DONTCARE, Slot
from dialoom.text import fold

_ENDS = " \t.,;:!?'\"()。，；：！？、“”‘’（）"


@dataclass(frozen=True, slots=True)
class Words:
    """The lists of all languages, folded."""

    kinds: frozenset[str]
    dontcare: frozenset[str]
    no_value: frozenset[str]
    own_kind: re.Pattern[str]
    before: re.Pattern[str]
    after: re.Pattern[str]
    copies: re.Pattern[str]


@cache
def words() -> Words:
    """The lists, made ready once."""
    lists = word_lists()
    return Words(
        kinds=frozenset([*with_plurals(lists["kinds"]), *lists["pointers"]]),
        dontcare=frozenset([DONTCARE, *lists["dontcare"]]),
        no_value=frozenset(["", *lists["no_value"]]),
        own_kind=re.compile("|".join(rf"(?<![a-z]){re.escape(w)}(?![a-z])" for w in lists["own_kind"])),
        before=re.compile("|".join(map(_prefix, lists["before"]))),
        after=re.compile("|".join(map(_suffix, lists["after"]))),
        copies=re.compile(rf"(?:{'|'.join(map(_prefix, lists['copies']))})(.+?)(?:一样|相同)?"),
    )


def with_plurals(kinds: Iterable[str]) -> frozenset[str]:
    """``kinds`` and, of those in Latin letters, the forms with an s."""
    kinds = list(kinds)
    return frozenset([*kinds, *(f"{kind}s" for kind in kinds if kind.isascii())])


def _prefix(word: str) -> str:
    return re.escape(word) + (r"(?:\s+|(?=[^\x00-\x7f]))" if word.isascii() else "")


def _suffix(word: str) -> str:
    return (r"\s+" if word.isascii() else "") + re.escape(word) + "$"


class Referents:
    """Tells names of kinds from entities, for the services of one catalog."""

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self._kinds = words().kinds | with_plurals([fold(kind) for kind in kinds])
        self._asks_for_kind: dict[str, bool] = {}

    def is_kind(self, value: str) -> bool:
        """Whether ``value`` only names a kind of thing, or points at something said before."""
        rest = fold(value).strip(_ENDS)
        kinds, lists = self._kinds, words()
        if rest in kinds:
            return True
        while (tail := lists.after.search(rest)) is not None and tail.start():
            rest = rest[: tail.start()]
            if rest in kinds:
                return True
        while (head := lists.before.match(rest)) is not None:
            rest = rest[head.end() :]
            if rest in kinds:
                return True
        return False

    def may_be_kind(self, slot: Slot) -> bool:
        """Whether a kind is an answer for ``slot``: it is categorical, or its name asks for a type or the like."""
        known = self._asks_for_kind.get(slot.name)
        if known is None:
            name = slot.name.lower().replace("_", " ").replace("-", " ")
            known = words().own_kind.search(name) is not None
            self._asks_for_kind[slot.name] = known
        return known or slot.is_categorical


def is_dontcare(value: str) -> bool:
    """Whether ``value`` says that anything will do."""
    return fold(value) in words().dontcare


def says_nothing(value: str) -> bool:
    """Whether ``value`` is how a model writes that a slot has no value ("", "none", "not mentioned")."""
    return fold(value) in words().no_value


def copied_name(value: str) -> str | None:
    """``X`` of "same as X", if ``value`` has that form."""
    found = words().copies.fullmatch(fold(value).strip(_ENDS))
    return found[1].strip() if found else None


def kinds_of(services: Mapping[str, object]) -> list[str]:
    """The kinds that the schema gives for ``services``."""
    return [kind for service in services.values() for kind in getattr(service, "kinds", ())]
