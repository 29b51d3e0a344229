"""What in a domain schema will hurt: said before a run, since a zero-shot method knows nothing but the schema.

ReacTOD names schema quality as the limit of its approach (Section "Limitations"); these checks make it visible. Levels:
``error`` (some value or intent can never be right), ``warning`` (a model will likely mix things up), ``note`` (worth
knowing).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from dialoom.schema import DONTCARE, Schema, Service, Slot, SlotType
from dialoom.text import fold

MANY_VALUES = 60
"""A longer list of values is worth a note: all of it stands in every prompt about the slot."""

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. ``service`` and ``slot`` say where (``slot`` also holds the name of an intent).

    ``what`` says what is wrong, ``hint`` what to do.
    """

    level: str
    service: str
    slot: str
    what: str
    hint: str


def check_schema(schema: Schema) -> list[Finding]:
    """All findings, worst first, then by service, slot and text. A pure function of the schema."""
    found = [finding for check in _SCHEMA_CHECKS for finding in check(schema)]
    for service in schema.services.values():
        for service_check in _SERVICE_CHECKS:
            found.extend(service_check(service))
        for slot in service.slots:
            found.extend(_slot(service, slot, schema.dontcare))
    return sorted(set(found), key=lambda f: (LEVELS.index(f.level), f.service, f.slot, f.what))


def _descriptions(service: Service) -> Iterator[Finding]:
    """Missing and duplicate descriptions inside a service."""
    if not service.description.strip():
        yield Finding("warning", service.name, "", "the service has no description", "Say in a sentence what it does.")
    for kind, items in (("slot", service.slots), ("intent", service.intents)):
        for item in items:
            if not item.description.strip():
                hint = f"Say what the {kind} means, as to somebody who sees nothing else."
                yield Finding("warning", service.name, item.name, f"the {kind} has no description", hint)
            elif _words(item.description) <= _words(item.name):
                hint = "Say more than the name does."
                yield Finding("note", service.name, item.name, "the description only repeats the name", hint)
        for names in _same((item.name, item.description) for item in items):
            what = f"{kind}s {_listed(names)} have the same description"
            yield Finding("warning", service.name, names[0], what, "Say how they differ.")


def _shape(service: Service) -> Iterator[Finding]:
    """Parts that a tracker cannot do without, and parts that nothing leads to."""
    if not service.intents:
        yield Finding("error", service.name, "", "the service has no intent", "Add one: no slot is set without it.")
    if not service.slots:
        yield Finding("note", service.name, "", "the service has no slot", "Nothing but its intents can be tracked.")
    used = {s for i in service.intents for s in (*i.required_slots, *i.optional_slots, *i.result_slots)}
    if used:
        for slot in service.slots:
            if slot.name not in used:
                hint = "Name it in required_slots or optional_slots, or leave it out."
                yield Finding("note", service.name, slot.name, "no intent takes or gives the slot", hint)
    defaults: dict[str, set[str]] = defaultdict(set)
    for intent in service.intents:
        for name, default in intent.optional_slots.items():
            defaults[name].add(default)
    for name, values in defaults.items():
        if len(values) > 1:
            what = f"intents share the slot with other defaults: {_listed(sorted(values))}"
            yield Finding("note", service.name, name, what, "Say in the description what it means for each intent.")


def _names(service: Service) -> Iterator[Finding]:
    """Names that a model or a parser may mistake."""
    named = [("service", service.name), *(("slot", s.name) for s in service.slots)]
    named += [("intent", i.name) for i in service.intents]
    for kind, name in named:
        where = "" if kind == "service" else name
        if not name.replace("-", "_").isidentifier():
            hint = "Use letters, digits, '_' and '-': other characters break answers apart."
            yield Finding("warning", service.name, where, f"the {kind}'s name is not an identifier", hint)
        if len(name) > 64:
            hint = "Function-call interfaces refuse such names."
            yield Finding("warning", service.name, where, f"the {kind}'s name is longer than 64 characters", hint)
        if kind == "intent" and fold(name) == "none":
            hint = "Rename it."
            yield Finding("error", service.name, where, "the intent is named as the word for no intent", hint)
    for kind, names in (("slot", [s.name for s in service.slots]), ("intent", [i.name for i in service.intents])):
        for same in _same((name, _plain(name)) for name in names):
            what = f"{kind}s {_listed(same)} differ only in case or punctuation"
            yield Finding("warning", service.name, same[0], what, "Rename all but one.")


def _slot(service: Service, slot: Slot, dontcare: bool) -> Iterator[Finding]:
    def finding(level: str, what: str, hint: str) -> Finding:
        return Finding(level, service.name, slot.name, what, hint)

    if slot.is_categorical and not slot.values:
        yield finding("error", "categorical, but without values: no value can be right", "List possible_values.")
    if slot.is_categorical and len(slot.values) == 1:
        yield finding("note", "categorical with a single value", "Is the list whole?")
    if slot.is_categorical and len(slot.values) > MANY_VALUES:
        yield finding("note", f"{len(slot.values)} values stand in every prompt", "A text slot may do better.")
    if not slot.is_categorical and slot.type is SlotType.TEXT:
        likely = _likely_type(slot)
        if likely:
            what = f"no type is given and none can be inferred; the name reads like {likely.value}"
            yield finding("note", what, f"Set type: {likely.value}, unless values are kept as they were said.")
    for same in _same((value, _plain(value) or value) for value in slot.values):
        level = "warning" if slot.is_categorical else "note"
        yield finding(level, f"values {_listed(same)} are the same once normalised", "Keep one of them.")
    for value in slot.values:
        if not value.strip() or value != value.strip():
            yield finding("warning", f"value '{value}' is empty or has blanks around it", "Trim or remove it.")
        elif dontcare and _plain(value) in _DONTCARE:
            yield finding("note", f"value '{value}' says that the user has no preference", _DONTCARE_HINT)
        elif not _fits(slot, value):
            level = "error" if slot.is_categorical else "warning"
            yield finding(
                level, f"value '{value}' does not fit type {slot.type.value}", "Change the value or the type."
            )


def _services_alike(schema: Schema) -> Iterator[Finding]:
    """Services and intents that cannot be told apart."""
    services = list(schema.services.values())
    for names in _same((s.name, s.description) for s in services):
        what = f"services {_listed(names)} have the same description"
        yield Finding("warning", names[0], "", what, "Say how they differ, or name the services of each dialogue.")
    intents = [(s.name, i) for s in services for i in s.intents]
    by_name: dict[str, list[str]] = defaultdict(list)
    by_text: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for service, intent in intents:
        by_name[intent.name].append(service)
        by_text[fold(intent.description)].append((service, intent.name))
    for name, owners in by_name.items():
        if len(owners) > 1:
            what = f"services {_listed(owners)} all have this intent"
            yield Finding("note", owners[0], name, what, "Say in the descriptions which one is for what.")
    for text, pairs in by_text.items():
        if text and len({service for service, _ in pairs}) > 1:
            what = f"intents {_listed(f'{s}.{i}' for s, i in pairs)} have the same description"
            yield Finding("warning", *pairs[0], what, "Say how they differ.")


def _shared_slots(schema: Schema) -> Iterator[Finding]:
    """Slots of one name that mean different things in different services."""
    owners: dict[str, list[tuple[str, Slot]]] = defaultdict(list)
    for service in schema.services.values():
        for slot in service.slots:
            owners[slot.name].append((service.name, slot))
    for name, pairs in owners.items():
        differences: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for (first, a), (second, b) in combinations(pairs, 2):
            level, what = _difference(a, b)
            if what:
                differences[level, what].update({first: None, second: None})
        for (level, what), services in differences.items():
            names = list(services)
            hint = "Rename it in one, or say in each description what is meant."
            yield Finding(level, names[0], name, f"services {_listed(names)} share the slot, but {what}", hint)


def _difference(a: Slot, b: Slot) -> tuple[str, str]:
    """How two slots of one name differ in meaning, and how bad that is; empty where nothing shows."""
    if a.type is not b.type:
        return "warning", f"with other types: {a.type.value} and {b.type.value}"
    if a.is_categorical != b.is_categorical:
        return "warning", "not all with a closed list of values"
    if a.is_categorical and a.values and b.values:
        disjoint = not {_plain(v) for v in a.values} & {_plain(v) for v in b.values}
        return ("warning", "some have no value in common") if disjoint else ("", "")
    content = _words(a.description) - _words(a.name), _words(b.description) - _words(b.name)
    if all(content) and not content[0] & content[1]:
        return "note", "some descriptions have no word in common"
    return "", ""


_SCHEMA_CHECKS: tuple[Callable[[Schema], Iterator[Finding]], ...] = (_services_alike, _shared_slots)
_SERVICE_CHECKS: tuple[Callable[[Service], Iterator[Finding]], ...] = (_descriptions, _shape, _names)

_DONTCARE = frozenset({"dontcare", "dontmind", "doesntmatter", "any", "anything", "nopreference", "都可以", "随便"})
_DONTCARE_HINT = f"'{DONTCARE}' is always allowed; two ways to say it split the answers."
_STOP_WORDS = frozenset(
    {"a", "an", "and", "at", "by", "for", "from", "in", "is", "it", "of", "on", "or", "the", "to", "with", "whether"}
)
_LIKELY: Mapping[SlotType, re.Pattern[str]] = {
    SlotType.TIME: re.compile(r"\b(time|hour|arrive ?by|leave ?at)\b|时间|几点"),
    SlotType.DATE: re.compile(r"\bdate\b|日期"),
    SlotType.DAY: re.compile(r"(?<!per )\b(book)?day$|^day\b|星期"),
    SlotType.INTEGER: re.compile(r"\b(number of|num|count|how many|people|guests|persons)\b|人数|数量"),
}
_FORMS: Mapping[SlotType, re.Pattern[str]] = {
    SlotType.TIME: re.compile(r"([01]\d|2[0-3]):[0-5]\d"),
    SlotType.INTEGER: re.compile(r"\d+"),
    SlotType.DAY: re.compile("monday|tuesday|wednesday|thursday|friday|saturday|sunday"),
    SlotType.DATE: re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
}


def _likely_type(slot: Slot) -> SlotType | None:
    """The type that the slot's name speaks of."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", slot.name)
    name = re.sub(r"[\W_]+", " ", name).lower()
    return next((kind for kind, pattern in _LIKELY.items() if pattern.search(name)), None)


def _fits(slot: Slot, value: str) -> bool:
    """Whether a listed value has the form of the slot's type. A boolean slot may name its two values itself."""
    if slot.type is SlotType.BOOLEAN:
        return len(slot.values) == 2 or value in ("True", "False", "yes", "no")
    form = _FORMS.get(slot.type)
    return form is None or form.fullmatch(value) is not None


def _plain(text: str) -> str:
    """``text`` without case, blanks and punctuation."""
    return re.sub(r"[\W_]+", "", fold(text))


def _words(text: str) -> frozenset[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return frozenset(re.sub(r"[\W_]+", " ", fold(spaced)).split()) - _STOP_WORDS


def _same(named: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of names whose texts are equal but for case and blanks; empty texts are left out."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in named:
        if fold(text):
            groups[fold(text)].append(name)
    return [names for names in groups.values() if len(names) > 1]


def _listed(names: Iterable[str], most: int = 5) -> str:
    shown = [f"'{name}'" for name in names]
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest
