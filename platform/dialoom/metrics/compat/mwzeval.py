"""Normalisation of the MultiWOZ_Evaluation package (``mwzeval``), which it applies to gold and predictions alike.

Source: MultiWOZ_Evaluation at 7f19ee01ffd9. Kept on purpose: no rule maps ``bookday``, ``bookpeople``, ``bookstay`` and
``booktime`` to the short names, so that predictions under short names never match gold of MultiWOZ 2.2; ``booktime`` is
no time; area, price range and day are not even lower-cased; "17:15 pm" becomes 29:15.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dialoom.metrics.compat.multiwoz import bare_name
from dialoom.state import SlotRef


def normal_slot(name: str) -> str:
    """A slot name in lower case, without blanks, ``arrive`` for ``arriveby`` and ``leave`` for ``leaveat``."""
    name = name.lower().replace(" ", "")
    return {"arriveby": "arrive", "leaveat": "leave"}.get(name, name)


def normal_ref(ref: SlotRef) -> SlotRef:
    """The slot under its normal name, without its domain as a prefix."""
    return SlotRef(ref.service, normal_slot(bare_name(ref)))


@cache
def normal_value(slot: str, value: str) -> str:
    """The value of a slot (under its normal name)."""
    rule = _BY_SLOT.get(slot)
    return rule(value) if rule else value


def _pairs(text: str) -> dict[str, str]:
    """``old, old -> new`` lines as a map."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        olds, _, new = line.partition("->")
        found |= {old.strip(): new.strip() for old in olds.split("|")}
    return found


_VENUES = _pairs(
    """
    hotel du vin bistro -> hotel du vin and bistro
    the river bar and grill -> the river bar steakhouse and grill
    nando's -> nandos
    city center b and b -> city center north b and b
    acorn house -> acorn guest house
    caffee uno | cafe uno -> caffe uno
    rosa's -> rosas bed and breakfast
    restaurant called two two | restaurant 2 two | restaurant two 2 | restaurant 2 2 -> restaurant two two
    restaurant 1 7 | restaurant 17 -> restaurant one seven
    lime house -> limehouse
    cityrooms -> cityroomz
    whale of time -> whale of a time
    huntingdon hotel -> huntingdon marriott hotel
    holiday inn exlpress, cambridge -> express by holiday inn cambridge
    university hotel -> university arms hotel
    arbury guesthouse and lodge | arbury guesthouse -> arbury lodge guesthouse
    bridge house -> bridge guest house
    nandos in the city centre -> nandos city centre
    broughton gallery -> broughton house gallery
    scudamores punt co -> scudamores punting co
    cambridge botanic gardens | the botanical gardens at cambridge university -> cambridge university botanic gardens
    the junction -> junction theatre
    trinity street college -> trinity college
    christ college | christs -> christ's college
    history of science museum -> whipple museum of the history of science
    parkside pools -> parkside swimming pool
    cafe jello museum -> cafe jello gallery
    """
)
_TYPES = _pairs(
    """
    swimming pool -> swimmingpool
    mutliple sports -> multiple sports
    night club -> nightclub
    guest house -> guesthouse
    """
)
_FOODS = _pairs(
    """
    eriterean -> mediterranean
    brazilian -> portuguese
    portugese -> portuguese
    sea food -> seafood
    modern american | americas -> north american
    intalian | italain -> italian
    asian or oriental -> asian
    english | brutish | bristish -> british
    australasian -> australian
    gastropod -> gastropub
    europeon -> european
    """
)
_TIMES = _pairs(
    """
    afternoon -> 13:00
    lunch | noon | mid-day | around lunch time -> 12:00
    morning -> 08:00
    seven o'clock tomorrow evening -> 07:00
    three forty five p.m -> 15:45
    one thirty p.m. -> 13:30
    six fourty five -> 06:45
    eight thirty -> 08:30
    """
)


def _name(value: str) -> str:
    value = value.strip().lower().replace(" & ", " and ").replace("&", " and ").replace(" '", "'")
    return _VENUES.get(value, value)


def _food(value: str) -> str:
    value = value.strip().lower()
    return _FOODS.get(value, value)


def _time(value: str) -> str:
    value = value.strip().lower()
    if value in _TIMES:
        return _TIMES[value]
    for start, time in (("one o'clock p.m", "13:00"), ("ten o'clock a.m", "10:00")):
        if value.startswith(start):
            return time
    if value.startswith("by"):
        value = value[3:]
    for word in ("after", "afer"):
        if value.startswith(word):
            value = value[len(word) :].strip()
            break
    for ending in ("am", "a.m."):
        if value.endswith(ending):
            value = value[: -len(ending)].strip()
    for ending in ("pm", "p.m."):
        if value.endswith(ending):
            value = value[: -len(ending)].strip()
            hour, colon, minute = value.partition(":")
            if hour.isdigit():
                return f"{int(hour) + 12}:{minute if colon else '00'}"
    return _clock(value)


def _clock(value: str) -> str:
    if not value:
        return "00:00"
    if value[-1] in ".,?":
        value = value[:-1]
    if value.isdigit() and len(value) == 4:
        return f"{value[:2]}:{value[2:]}"
    if value.isdigit():
        return value.zfill(2) + ":00"
    if ":" in value:
        value = value.replace(" ", "")
    if len(value) == 4 and value[1] == ":":
        return "0" + value
    return value


def _free(value: str) -> str:
    return "yes" if value == "free" else value


def _type(value: str) -> str:
    return _TYPES.get(value, value)


_BY_SLOT: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("name", "destination", "departure"), _name),
    **dict.fromkeys(("arrive", "leave", "time"), _time),
    **dict.fromkeys(("parking", "internet"), _free),
    "type": _type,
    "food": _food,
}
