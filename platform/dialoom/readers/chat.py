"""Reader ``chat``: plain logs as JSON lines, one dialogue a line, labelled or not (format: ``docs/readers.md``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.errors import BadInput, DataError
from dialoom.reader import ReaderConfig
from dialoom.readers._raw import Fault, Place, Raw, line_records, unpacked_name
from dialoom.readers._records import a_list, a_text, an_id, an_object, dialogues, member, texts, type_name
from dialoom.readers._split_list import Split, SplitConfig
from dialoom.registry import did_you_mean
from dialoom.schema import NO_INTENT

_USER = ["user", "human", "customer", "client", "caller", "visitor", "用户", "客户", "顾客"]
_SYSTEM = ["system", "assistant", "bot", "agent", "ai", "model", "operator", "系统", "助手", "客服", "机器人"]
ROLES: Mapping[str, Speaker] = {**dict.fromkeys(_USER, Speaker.USER), **dict.fromkeys(_SYSTEM, Speaker.SYSTEM)}
"""The roles known without settings, in lower case."""

_NO_TURN = frozenset({"developer", "tool", "function"})
ID_FIELDS = ("dialogue_id", "id")
_ROLE_FIELDS = ("role", "speaker")
TEXT_FIELDS = ("text", "content", "utterance")
_GOLD_FIELDS = frozenset({"state", "intent", "requested"})
_TURN_FIELDS = frozenset({*_ROLE_FIELDS, *TEXT_FIELDS, *_GOLD_FIELDS})
_OWN_FIELDS = frozenset({*ID_FIELDS, "turns", "messages", "services", "service", "knowledge", "language"})
_ENDINGS = (".jsonl", ".ndjson", ".jsonlines")


class ChatConfig(SplitConfig):
    """Settings of the reader ``chat``."""

    roles: Mapping[str, Literal["user", "system"]] = Field(default_factory=dict)
    """Further role names, each with the side it speaks for; they come before the built-in ones."""


class ChatReader:
    """Consecutive messages of one side stay apart; fields the format does not know are kept in ``extra``."""

    name = "chat"
    config: type[ReaderConfig] = ChatConfig

    def wants(self, file_name: str) -> bool:
        return unpacked_name(file_name).endswith(_ENDINGS)

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        return logs(paths, config, lambda path: _whole_lines(line_records(path)))


def logs(
    paths: Sequence[Path], config: ChatConfig, records: Callable[[Path], Iterator[Raw | Fault]]
) -> Iterator[Dialogue | BadInput]:
    """The dialogues of ``paths``, whose ``records`` are in the chat format. Raises JobError over a split list."""
    split = Split(config.ids)
    own = {name.lower(): Speaker(side) for name, side in config.roles.items()}
    named = ((path, _Log(label, own)) for path, label in zip(paths, _labels(paths), strict=True))
    found = (dialogues(records(path), log.dialogue, ID_FIELDS, log.name, split) for path, log in named)
    return chain(chain.from_iterable(found), split.missing())


def _labels(paths: Sequence[Path]) -> list[str]:
    """What each file's records are named after: its stem, with its folder where two files share one."""
    stems = [unpacked_name(path.name).rpartition(".")[0] or path.name for path in paths]
    seen = Counter(stems)
    return [f"{path.parent.name}/{stem}" if seen[stem] > 1 else stem for path, stem in zip(paths, stems, strict=True)]


def _whole_lines(items: Iterator[Raw | Fault]) -> Iterator[Raw | Fault]:
    """``items`` as they are; but one fault and an end at the first line of a file that is not JSON lines."""
    for i, item in enumerate(items):
        if i == 0 and (item.data == b"{" or item.data.startswith(b"[")):
            what = "the file is not JSON lines: it is a list, or a record goes over several lines"
            hint = "One dialogue a line, for example: jq -c '.[]' in.json > out.jsonl."
            yield Fault(item.place, what, hint, item.data)
            return
        yield item


@dataclass(frozen=True, slots=True)
class _Log:
    """How the records of one file become dialogues."""

    label: str
    own_roles: Mapping[str, Speaker]

    def name(self, place: Place) -> str:
        return f"{self.label}:{place.line}"

    def dialogue(self, value: Any, raw: Raw) -> Dialogue:
        record = an_object(value, "a dialogue")
        given = next((record[f] for f in ID_FIELDS if record.get(f) is not None), None)
        field = "turns" if "turns" in record else "messages"
        messages = a_list(member(record, field), f"field '{field}'")
        services = _services(record)
        turns, others, more = self._turns(messages, services)
        if not turns:
            raise DataError("the dialogue has no turns")
        extra = {k: v for k, v in record.items() if k not in _OWN_FIELDS}
        for key, kept in (("other_messages", others), ("turn_fields", more)):
            if kept:
                extra[f"_{key}" if key in extra else key] = kept
        return Dialogue(
            dialogue_id=self.name(raw.place) if given is None else an_id(given, "the dialogue's id"),
            turns=tuple(turns),
            services=services,
            language=_language(record.get("language")),
            knowledge=_knowledge(record.get("knowledge")),
            extra=extra,
            source=str(raw.place),
        )

    def _turns(
        self, messages: list[Any], services: tuple[str, ...]
    ) -> tuple[list[Turn], list[dict[str, Any]], dict[str, Any]]:
        """The turns; messages that are none, each with the index of the turn it precedes; unknown fields by turn."""
        turns: list[Turn] = []
        others: list[dict[str, Any]] = []
        more: dict[str, Any] = {}
        records = [an_object(m, "a message", f"message {i}") for i, m in enumerate(messages)]
        roles = [_role(record, f"message {i}") for i, record in enumerate(records)]
        instructed = "assistant" in roles and "system" not in self.own_roles
        for i, (record, role) in enumerate(zip(records, roles, strict=True)):
            where = f"message {i}"
            speaker = self._speaker(role, where, instructed)
            text = None if speaker is None else _text(record, where)
            if speaker is None or text is None:
                others.append({"before_turn": len(turns), **record})
                continue
            known = _TURN_FIELDS if speaker is Speaker.USER else _TURN_FIELDS - _GOLD_FIELDS
            rest = {k: v for k, v in record.items() if k not in known}
            if rest:
                more[str(len(turns))] = rest
            turns.append(Turn(speaker, text, _frames(record, services, where) if speaker is Speaker.USER else None))
        return turns, others, more

    def _speaker(self, role: str, where: str, instructed: bool) -> Speaker | None:
        """Who speaks in ``role``; None for instructions and tool output, which are no turns."""
        if role in self.own_roles:
            return self.own_roles[role]
        if role in _NO_TURN or (role == "system" and instructed):
            return None
        if role not in ROLES:
            hint = f"{did_you_mean(role, [*self.own_roles, *ROLES])} Others: option 'roles' of the reader."
            raise DataError(f"unknown role '{role}'", where=where, hint=hint)
        return ROLES[role]


def _role(record: Mapping[str, Any], where: str) -> str:
    field = next((f for f in _ROLE_FIELDS if f in record), _ROLE_FIELDS[0])
    return a_text(member(record, field, where), f"field '{field}'", where).strip().lower()


def _text(record: Mapping[str, Any], where: str) -> str | None:
    """What is said: a text, or the text parts of a list of parts; None where it is null (a bare tool call)."""
    field = next((f for f in TEXT_FIELDS if f in record), TEXT_FIELDS[0])
    value = member(record, field, where)
    if isinstance(value, list):
        parts = [an_object(part, "a part", where) for part in value]
        return "\n".join(a_text(p.get("text", f"[{p.get('type', 'part')}]"), "field 'text'", where) for p in parts)
    return None if value is None else a_text(value, f"field '{field}'", where)


def _services(record: Mapping[str, Any]) -> tuple[str, ...]:
    if record.get("services") is not None:
        return texts(record["services"], "field 'services'")
    return () if record.get("service") is None else (a_text(record["service"], "field 'service'"),)


def _language(value: Any) -> str:
    """The primary subtag in lower case: ``zh-CN`` is ``zh``."""
    return "" if value is None else a_text(value, "field 'language'").replace("_", "-").partition("-")[0].lower()


def _knowledge(value: Any) -> str | None:
    if isinstance(value, list):
        return "\n\n".join(texts(value, "field 'knowledge'"))
    return None if value is None else a_text(value, "field 'knowledge'")


def _frames(record: Mapping[str, Any], services: tuple[str, ...], where: str) -> tuple[Frame, ...] | None:
    """The gold of a user turn; None where it has no ``state``."""
    if record.get("state") is None:
        other = next((f for f in ("intent", "requested") if record.get(f) is not None), None)
        if other:
            hint = "Give the whole state after the turn, {} where nothing is set yet."
            raise DataError(f"field '{other}' needs the field 'state' beside it", where=where, hint=hint)
        return None
    state = an_object(record["state"], "field 'state'", where)
    intents = _intents(record.get("intent"), tuple(state) if len(state) == 1 else services, where)
    asked = None if record.get("requested") is None else an_object(record["requested"], "field 'requested'", where)
    frames = []
    for service in dict.fromkeys([*state, *(intents or ()), *(asked or ())]):
        values = an_object(state.get(service, {}), f"state of '{service}'", where)
        forms = {slot: _forms(value, slot, where) for slot, value in values.items()}
        frames.append(
            Frame(
                service,
                {slot: v for slot, v in forms.items() if v},
                None if intents is None else intents.get(service, NO_INTENT),
                None if asked is None else texts(asked.get(service, []), "field 'requested'", where),
            )
        )
    return tuple(frames)


def _intents(value: Any, services: tuple[str, ...], where: str) -> Mapping[str, str] | None:
    """Service to active intent. A bare text speaks of the only service there is."""
    if value is None:
        return None
    if isinstance(value, str):
        if len(services) != 1:
            hint = 'Write {"service": "intent"}.'
            raise DataError("field 'intent' does not say which service it means", where=where, hint=hint)
        return {services[0]: value}
    intents = an_object(value, "field 'intent'", where)
    return {service: a_text(intent, "field 'intent'", where) for service, intent in intents.items()}


def _forms(value: Any, slot: str, where: str) -> tuple[str, ...]:
    """All values of a slot, as texts; none for null and the empty text."""
    forms = []
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, (bool, int, float)):
            one = str(one)
        if one is not None and not isinstance(one, str):
            raise DataError(f"slot '{slot}' must be a text, but is {type_name(one)}", where=where)
        if one:
            forms.append(one)
    return tuple(forms)


PLUGIN = ChatReader()
