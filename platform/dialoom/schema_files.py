"""Domain schemas from files: SGD and MultiWOZ 2.2 service definitions as they are, and dialoom's own YAML.

Both forms have the same fields (``docs/schemas.md``); the YAML form adds ``type`` and ``kinds``, and ``name`` and
``dontcare`` at the top. A mistake is reported with file, line, field, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from dialoom.errors import SchemaError
from dialoom.registry import did_you_mean
from dialoom.schema import NO_INTENT, Intent, Schema, Service, Slot, SlotType

MAX_FILE_BYTES = 64 * 2**20

_BOOLEANS = frozenset({"true", "false"})


class _Record(BaseModel, extra="forbid", frozen=True, coerce_numbers_to_str=True):
    pass


class _SlotRecord(_Record):
    name: str = Field(min_length=1)
    description: str = ""
    is_categorical: bool = False
    possible_values: tuple[str, ...] = ()
    type: SlotType | None = None

    @field_validator("possible_values", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return () if value in (None, "") else value


class _IntentRecord(_Record):
    name: str = Field(min_length=1)
    description: str = ""
    is_transactional: bool = False
    required_slots: tuple[str, ...] = ()
    optional_slots: Mapping[str, str] = Field(default_factory=dict)
    result_slots: tuple[str, ...] = ()

    @field_validator("optional_slots", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return dict.fromkeys(value, "")
        return value or {}

    @field_validator("required_slots", "result_slots", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return () if value in (None, "") else value


class _ServiceRecord(_Record):
    service_name: str = Field(min_length=1)
    description: str = ""
    kinds: tuple[str, ...] = ()
    slots: tuple[_SlotRecord, ...] = ()
    intents: tuple[_IntentRecord, ...] = ()


class _SchemaRecord(_Record):
    name: str = ""
    dontcare: bool = True
    services: tuple[_ServiceRecord, ...] = Field(min_length=1)


_At = Sequence[str | int]  # keys and indexes that lead to a value inside a file
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def load_schema(path: str | Path, *, name: str | None = None) -> Schema:
    """The schema in ``path``: JSON if its name ends so, else YAML.

    ``name`` goes before the file's own name for it, which goes before the file's stem. A categorical slot with the
    values True and False is boolean; every other slot without a ``type`` is text, since the values of SGD are surface
    forms. Raises SchemaError.
    """
    path = Path(path).expanduser()
    text = _text(path)
    tree = _Tree(path, text)
    record = _validated(tree)
    services = dict(_services(record, tree))
    stem = path.name.partition(".")[0]
    return Schema(name or record.name or stem, services, dontcare=record.dontcare, source=str(path))


def _text(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SchemaError(f"larger than {MAX_FILE_BYTES} bytes", where=str(path), hint="Is this a schema file?")
        return path.read_bytes()
    except FileNotFoundError as error:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, n=1)
        hint = f"Did you mean '{path.parent / near[0]}'?" if near else f"Seen from {Path.cwd()}."
        raise SchemaError("there is no such schema file", where=str(path), hint=hint) from error
    except OSError as error:
        raise SchemaError(f"cannot read the file: {error.strerror or error}", where=str(path)) from error


class _Tree:
    """The values of a file, and the line of each of them on demand."""

    def __init__(self, path: Path, text: bytes) -> None:
        self._path = path
        self._text = text
        self._is_json = path.suffix.lower() == ".json"
        self._root: yaml.Node | None = None
        self.value = self._json() if self._is_json else self._yaml()

    def error(self, what: str, at: _At, hint: str = "") -> SchemaError:
        """An error about the value at ``at``."""
        line = self._line(at)
        return SchemaError(what, where=f"{self._path}:{line}" if line else str(self._path), hint=hint)

    def _json(self) -> Any:
        try:
            return orjson.loads(self._text.removeprefix(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError as error:
            raise SchemaError(f"broken JSON: {error.msg}", where=f"{self._path}:{error.lineno}") from error

    def _yaml(self) -> Any:
        """All scalars as texts, so that a value list may hold yes, 1 or 12:30 without quotes."""
        try:
            self._root = yaml.compose(self._text, Loader=_Loader)
            if self._root is None:
                return None
            _refuse_repeated_keys(self._root, self._path)
            return yaml.load(self._text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self._path}:{mark.line + 1}" if mark else str(self._path)
            raise SchemaError(f"broken YAML: {error.problem or error.context}", where=where) from error
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise SchemaError(f"broken YAML: {error}", where=str(self._path)) from error

    def _line(self, at: _At) -> int | None:
        """The line of the value, or of the nearest thing around it. JSON is read as the YAML that it nearly is."""
        if self._root is None:
            try:
                self._root = yaml.compose(self._text.replace(b"\t", b" "), Loader=_Loader)
            except (yaml.YAMLError, RecursionError, ValueError):
                return None
        node = self._root
        for part in at:
            inside = _child(node, part)
            if inside is None:
                break
            node = inside
        return None if node is None else node.start_mark.line + 1


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                # A key marks the place better than a block value, which starts a line below.
                return value if isinstance(value, (yaml.MappingNode, yaml.SequenceNode)) else key
    return None


def _refuse_repeated_keys(node: yaml.Node, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                where = f"{path}:{key.start_mark.line + 1}"
                raise SchemaError(f"field '{key.value}' occurs twice", where=where, hint="Keep one of them.")
            keys.add(str(key.value))
            _refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value, path)


def _validated(tree: _Tree) -> _SchemaRecord:
    """The file's content in shape; a bare list is a list of services."""
    is_list = isinstance(tree.value, list)
    if not is_list and not isinstance(tree.value, dict):
        raise tree.error("a schema must be a list of services, or an object with 'services'", ())
    try:
        return _SchemaRecord.model_validate({"services": tree.value} if is_list else tree.value)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
    at = [part for part in found["loc"] if isinstance(part, (str, int))]
    shown = ".".join(str(part) for part in at)
    at = at[1:] if is_list else at
    if found["type"] == "extra_forbidden":
        raise tree.error(f"unknown field '{at[-1]}'", at, did_you_mean(str(at[-1]), _fields(at)))
    if found["type"] == "missing":
        raise tree.error(f"field '{at[-1]}' is missing", at[:-1])
    if found["type"] == "enum":
        allowed = [str(t) for t in SlotType]
        raise tree.error(f"{shown}: unknown type '{found['input']}'", at, did_you_mean(str(found["input"]), allowed))
    message = found["msg"].replace("valid tuple", "list").replace("valid dictionary", "object")
    raise tree.error(f"{shown}: {message}, found {found['input']!r}", at)


def _fields(at: _At) -> list[str]:
    """The fields allowed where the last part of ``at`` stands."""
    names = [part for part in at[:-1] if isinstance(part, str)]
    inner = names[-1] if names else ("services" if at and isinstance(at[0], int) else "")
    models: dict[str, type[_Record]] = {"slots": _SlotRecord, "intents": _IntentRecord, "services": _ServiceRecord}
    return list(models.get(inner, _SchemaRecord).model_fields)


def _services(record: _SchemaRecord, tree: _Tree) -> Iterator[tuple[str, Service]]:
    """Each service by name. Raises SchemaError for names that occur twice and slots that an intent does not have."""
    base: _At = () if isinstance(tree.value, list) else ("services",)
    _refuse_twice([s.service_name for s in record.services], "service", tree, base)
    for i, service in enumerate(record.services):
        at = (*base, i)
        names = [slot.name for slot in service.slots]
        _refuse_twice(names, "slot", tree, (*at, "slots"))
        _refuse_twice([intent.name for intent in service.intents], "intent", tree, (*at, "intents"))
        for j, intent in enumerate(service.intents):
            inside = (*at, "intents", j)
            if intent.name == NO_INTENT:
                raise tree.error(f"'{NO_INTENT}' cannot name an intent: it says that there is none", inside)
            for field in ("required_slots", "optional_slots", "result_slots"):
                for slot in getattr(intent, field):
                    if slot not in names:
                        what = f"{field} of intent '{intent.name}' names '{slot}', which is no slot of the service"
                        raise tree.error(what, (*inside, field), did_you_mean(slot, names))
        yield service.service_name, _service(service)


def _refuse_twice(names: Sequence[str], what: str, tree: _Tree, at: _At) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise tree.error(f"{what} '{name}' occurs twice", (*at, i))
        seen.add(name)


def _service(record: _ServiceRecord) -> Service:
    return Service(
        name=record.service_name,
        description=record.description,
        slots=tuple(_slot(slot) for slot in record.slots),
        intents=tuple(
            Intent(
                name=i.name,
                description=i.description,
                is_transactional=i.is_transactional,
                required_slots=i.required_slots,
                optional_slots=dict(i.optional_slots),
                result_slots=i.result_slots,
            )
            for i in record.intents
        ),
        kinds=record.kinds,
    )


def _slot(record: _SlotRecord) -> Slot:
    kind = record.type
    if kind is None:
        is_boolean = record.is_categorical and {v.lower() for v in record.possible_values} == _BOOLEANS
        kind = SlotType.BOOLEAN if is_boolean else SlotType.TEXT
    return Slot(record.name, record.description, record.is_categorical, record.possible_values, kind)
