"""Scripted answers for the tracker, derived from gold: raw texts as a model would write them, with errors on demand.

:func:`write_answers` makes the file that the scripted engine reads, and says what must come of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.schema import Schema
from support.oracle import Key, Oracle, gold_after

BEFORE_SLOTS = ("order", "broken", "unknown_intent", "unknown_tool")
IN_SLOTS = ("time", "kind", "unknown_slot", "unconfirmed", "outside_list", "repeated")
ERRORS = (*BEFORE_SLOTS, *IN_SLOTS)
"""Every kind of error that can be seeded."""

_RULE_BEFORE = {
    "order": "action.order",
    "broken": "action.not_parsable",
    "unknown_intent": "schema.unknown_intent",
    "unknown_tool": "action.unknown_tool",
}
Value = tuple[Key, str]


@dataclass
class Expected:
    """What one turn must end with. ``fired`` holds (rule, call); ``seeded`` says that slots carried a seeded error."""

    dialogue_id: str
    turn: int
    answers: list[str]
    state: dict[Key, str]
    delta: dict[Key, str]
    active: dict[str, str]
    fired: list[tuple[str, int]]
    seeded: bool = False
    rejected_gold: list[tuple[Key, str, str]] = field(default_factory=list)


def write_answers(
    path: Path,
    dialogues: Iterable[Dialogue],
    schema: Schema,
    *,
    protocol: str = "json",
    errors: Sequence[str] = (),
    share: float = 0.3,
    seed: int = 0,
    limit: int | None = None,
    method: str | None = None,
) -> list[Expected]:
    """Write one line a user turn, for at most ``limit`` dialogues; each kind of error in ``share`` of the turns."""
    expected: list[Expected] = []
    oracles: dict[tuple[str, ...], Oracle] = {}
    with path.open("w", encoding="utf-8") as file:
        for count, dialogue in enumerate(dialogues):
            if limit is not None and count >= limit:
                break
            services = tuple(dialogue.services or schema.services)
            oracle = oracles.get(services) or oracles.setdefault(services, Oracle(schema, services))
            writer = _Writer(dialogue, oracle, protocol, errors, share, seed)
            for turn in writer.turns():
                line: dict[str, object] = {"dialogue_id": turn.dialogue_id, "turn": turn.turn, "answers": turn.answers}
                if method is not None:
                    line["method"] = method
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                expected.append(turn)
    return expected


class _Writer:
    """One dialogue's answers."""

    def __init__(
        self, dialogue: Dialogue, oracle: Oracle, protocol: str, errors: Sequence[str], share: float, seed: int
    ) -> None:
        self._dialogue = dialogue
        self._oracle = oracle
        self._protocol = protocol
        self._errors = errors
        self._share = share
        self._random = Random(f"{seed}/{dialogue.dialogue_id}")
        self._state: dict[Key, str] = {}
        self._active: dict[str, str] = {}
        self._gold: dict[Key, tuple[str, ...]] = {}

    def turns(self) -> Iterable[Expected]:
        for index, turn in enumerate(self._dialogue.turns):
            if turn.speaker is Speaker.USER:
                yield self._turn(index, turn)

    def _turn(self, index: int, turn: Turn) -> Expected:
        before, self._gold = self._gold, gold_after(self._gold, turn.frames or ())
        gold = self._gold
        wanted = [
            (k, v[0])
            for k, v in gold.items()
            if self._state.get(k) not in v and gold[k] != before.get(k) and self._oracle.slot(k) is not None
        ]
        intents = self._intents(turn, wanted)
        out = Expected(self._dialogue.dialogue_id, index, [], {}, {}, {}, [])
        if not intents:
            self._before_slots(out, [])
            out.answers.append(self._say("classify_intent", {"intents": ["none"]}))
            self._active = {}
        else:
            self._before_slots(out, wanted)
            out.answers.append(self._say("classify_intent", {"intents": self._intent_names(intents)}))
            self._active.update(intents)
            self._slots(out, wanted, [service for service, _ in intents])
        out.state, out.active = dict(self._state), dict(self._active)
        return out

    def _intents(self, turn: Turn, wanted: Sequence[Value]) -> list[tuple[str, str]]:
        found = {
            f.service: f.active_intent for f in turn.frames or () if f.active_intent not in (None, "NONE") if f.service
        }
        intents = {service: str(intent) for service, intent in found.items()}
        for (service, _), _value in wanted:
            intents.setdefault(service, self._active.get(service) or self._oracle.services[service].intents[0].name)
        unannotated = bool(turn.frames) and all(f.active_intent is None for f in turn.frames or ())
        if not intents and self._active and unannotated and self._random.random() < 0.5:
            service = self._random.choice(sorted(self._active))
            intents[service] = self._active[service]
        return list(intents.items())

    def _before_slots(self, out: Expected, wanted: Sequence[Value]) -> None:
        """Errors before an intent is confirmed, two at most: six calls must do."""
        chosen = [e for e in BEFORE_SLOTS if e in self._errors and self._random.random() < self._share]
        for error in self._random.sample(chosen, min(2, len(chosen))):
            out.fired.append((_RULE_BEFORE[error], len(out.answers)))
            if error == "order":
                out.answers.append(
                    self._say("resolve_slots", {"slots": self._pairs(wanted, list(self._oracle.services))})
                )
            elif error == "unknown_intent":
                out.answers.append(self._say("classify_intent", {"intents": ["OrderPizza"]}))
            elif error == "unknown_tool":
                out.answers.append(self._say("book_now", {}))
            else:
                head = (
                    '{"tool": "classify_intent", "arguments": '
                    if self._protocol == "json"
                    else "Action: x\nAction Input: "
                )
                out.answers.append(head + '{"intents": ["no')

    def _slots(self, out: Expected, wanted: Sequence[Value], active: Sequence[str]) -> None:
        rulings = [(k, v, self._oracle.rule_on(k, v, active)) for k, v in wanted]
        good = [(k, v) for k, v, r in rulings if not r.rule]
        bad = [(k, v, r.rule) for k, v, r in rulings if r.rule]
        out.rejected_gold = bad
        out.delta = {k: r.form for k, v, r in rulings if r.form is not None and r.form != self._state.get(k)}
        first, rules, repeat = self._spoiled(list(wanted), active)
        rules += [rule for _, _, rule in bad]
        out.seeded = first != list(wanted)
        if rules:
            self._rejected(out, first, rules, active, repeat)
        pairs = good if rules else list(wanted)
        out.answers.append(self._say("resolve_slots", {"slots": self._pairs(pairs, active)}))
        self._state |= out.delta

    def _rejected(
        self, out: Expected, first: Sequence[Value], rules: Sequence[str], active: Sequence[str], repeat: bool
    ) -> None:
        call = len(out.answers)
        answer = self._say("resolve_slots", {"slots": self._pairs(first, active)})
        out.answers.append(answer)
        out.fired += [(rule, call) for rule in rules]
        if repeat and len(out.answers) < 5:
            out.fired.append(("action.repeated", len(out.answers)))
            out.answers.append(answer)

    def _spoiled(self, values: list[Value], active: Sequence[str]) -> tuple[list[Value], list[str], bool]:
        """The first proposal with seeded errors, the rules they must trip, and whether to send it twice."""
        chosen = [e for e in IN_SLOTS if e in self._errors and self._random.random() < self._share]
        rules: list[str] = []
        for error in chosen:
            if error in ("time", "kind", "outside_list"):
                rules += self._spoil_value(values, error, active)
            elif error == "unknown_slot":
                values.append(((active[0], "shoe_size"), "44"))
                rules.append("schema.unknown_slot")
            elif error == "unconfirmed":
                rules += self._foreign(values, active)
        return values, rules, "repeated" in chosen

    def _spoil_value(self, values: list[Value], error: str, active: Sequence[str]) -> list[str]:
        for i, (key, value) in enumerate(values):
            slot = self._oracle.slot(key)
            if slot is None or self._oracle.rule_on(key, value, active).form is None:
                continue
            if error == "time" and slot.type.value == "time":
                values[i] = (key, "5:30pm")
                return ["schema.type"]
            if error == "outside_list" and slot.is_categorical:
                values[i] = (key, "purple")
                return ["schema.categorical"]
            if error == "kind" and not slot.is_categorical and slot.type.value == "text":
                spoiled = self._random.choice(["the restaurant", "there", "that hotel", "那家餐厅", "same place"])
                if self._oracle.rule_on(key, spoiled, active).rule:
                    values[i] = (key, spoiled)
                    return ["coref.kind"]
        return []

    def _foreign(self, values: list[Value], active: Sequence[str]) -> list[str]:
        others = [s for name, s in self._oracle.services.items() if name not in active and s.slots]
        if not others:
            return []
        service = self._random.choice(others)
        values.append(((service.name, service.slots[0].name), "somewhere"))
        return ["action.intent_not_confirmed"]

    def _pairs(self, values: Sequence[Value], active: Sequence[str]) -> object:
        named = [(self._slot_name(key, active), value) for key, value in values]
        if self._protocol == "text" and self._random.random() < 0.7 and len({n for n, _ in named}) == len(named):
            return dict(named)
        return [{"slot": name, "value": value} for name, value in named]

    def _slot_name(self, key: Key, active: Sequence[str]) -> str:
        service, slot = key
        owners = [s for s in active for one in self._oracle.services[s].slots if one.name == slot]
        if service in active and len(owners) == 1 and self._random.random() < 0.7:
            return slot
        return slot if slot.startswith(f"{service}-") else f"{service}-{slot}"

    def _intent_names(self, intents: Sequence[tuple[str, str]]) -> list[str]:
        names = []
        for service, intent in intents:
            owners = [s for s in self._oracle.services.values() for i in s.intents if i.name == intent]
            names.append(intent if len(owners) == 1 else f"{service}-{intent}")
        return names

    def _say(self, tool: str, arguments: dict[str, object]) -> str:
        """The raw text of one action, in one of the ways that models write it."""
        text = json.dumps(arguments, ensure_ascii=self._random.random() < 0.5)
        if self._protocol == "text":
            thought = self._random.choice(
                ["Thought: The user said so.\n", "Thought: 用户这样说。\n", "**Thought:** ok\n", ""]
            )
            fenced = f"```json\n{text}\n```" if self._random.random() < 0.2 else text
            return f"{thought}Action: {tool}\nAction Input: {fenced}"
        whole = f'{{"tool": "{tool}", "arguments": {text}}}'
        return f"```json\n{whole}\n```" if self._random.random() < 0.2 else whole
