"""Predictions made elsewhere, joined with gold, in the form of the traces' turns table.

A format is one module in ``dialoom.formats`` with a ``PLUGIN`` of type :class:`Format`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from dialoom.errors import DataError, StorageError
from dialoom.schema import Service
from dialoom.state import SlotRef
from dialoom.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 12
"""Misfits that an error names one by one."""


@dataclass(frozen=True)
class Predictions:
    """Gold and predictions of a foreign file or folder.

    ``rows`` has one row a gold user turn of every dialogue that is predicted (columns of the turns table, and
    ``gold_spans``, ``pred_spans`` where the format marks spans). ``missing`` are the gold dialogues that are not
    predicted; they are counted, not scored.
    """

    format: str
    rows: pa.Table
    schema: Mapping[str, Service]
    declares: frozenset[str]
    whole_state: bool
    missing: tuple[str, ...] = ()
    seen: frozenset[str] | None = None
    goals: Mapping[str, tuple[str, ...]] | None = None
    """Goal domains by dialogue id, where the format or gold says them."""


@dataclass(frozen=True)
class Source:
    """What a format reads from: predictions, gold (``None`` where the predictions hold it), schema file (or none).

    ``partial`` lets a dialogue have fewer predicted turns than gold, as some published evaluators do; the rest of its
    turns are then not scored.
    """

    predictions: Path
    gold: Path | None = None
    schema: Path | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RunTurn:
    """One user turn of a run, for export. ``gold`` is the whole gold state, ``None`` where the turn is not labelled;
    ``gold_services`` are the services annotated at this turn."""

    turn: int
    system_text: str
    user_text: str
    state: Mapping[SlotRef, str]
    active_intents: Mapping[str, str]
    requested: tuple[SlotRef, ...]
    gold_services: tuple[str, ...] | None
    gold: Mapping[SlotRef, tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class RunDialogue:
    """One scored dialogue of a run, for export."""

    dialogue_id: str
    turns: tuple[RunTurn, ...]
    goal: tuple[str, ...] | None = None


class Format(Protocol):
    """A file format of predictions."""

    name: str

    def detect(self, path: Path) -> bool:
        """Whether ``path`` looks like this format; cheap, never raises for a readable file."""

    def read(self, source: Source) -> Predictions:
        """Join predictions and gold. Raises DataError that says which dialogues and turns do not fit."""

    def write(self, dialogues: Iterable[RunDialogue], declares: frozenset[str], out: Path) -> list[Path]:
        """Write a run's predictions into the folder ``out``; returns the files."""


@dataclass
class Misfits:
    """Collects what does not fit, and raises it all as one error."""

    path: Path
    found: list[str] = field(default_factory=list)

    def add(self, dialogue: str, turn: int | None, what: str) -> None:
        """Note one misfit. ``turn`` is the index in the dialogue as its file counts."""
        place = f"dialogue {dialogue}" + ("" if turn is None else f" turn {turn}")
        self.found.append(printable(f"{place}: {what}", limit=160))

    def check(self, hint: str) -> None:
        """Raise DataError if there is any misfit."""
        if not self.found:
            return
        shown = "; ".join(self.found[:SHOWN])
        more = f"; and {len(self.found) - SHOWN} more" if len(self.found) > SHOWN else ""
        error = DataError("predictions and gold do not fit", where=str(self.path), hint=hint)
        error.what = f"{len(self.found)} misfits between predictions and gold: {shown}{more}"
        raise error


def json_files(path: Path, pattern: str = "*.json") -> list[Path]:
    """The file itself, or the JSON files of a folder, sorted. Raises DataError where there is none."""
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob(pattern) if p.name != "schema.json")
    if not files:
        raise DataError(
            f"no {pattern} file is there", where=str(path), hint="Name a file, or a folder that holds some."
        )
    return files


def load_json(path: Path) -> Any:
    """The JSON of ``path``. Raises DataError with line and column."""
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise DataError(f"not valid JSON: {error.msg}", where=where, hint="Is the file complete?") from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error


def save_json(path: Path, record: Any) -> Path:
    """Write ``record`` as JSON. Raises StorageError."""
    try:
        path.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror}", where=str(path)) from error
    return path


def expect(record: Any, kind: type, what: str, where: str) -> Any:
    """``record`` if it is a ``kind``, else DataError that says what was expected where."""
    if not isinstance(record, kind):
        names: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
        found = names.get(type(record), type(record).__name__)
        raise DataError(f"{what} should be {names.get(kind, kind.__name__)}, found {found}", where=where)
    return record


def table(rows: Sequence[Mapping[str, Any]], *, spans: bool = False) -> pa.Table:
    """Rows as a table with the column types of the turns table."""
    import pyarrow as pa

    from dialoom.metrics._build import SPANS
    from dialoom.traces.tables import TURNS

    names = ["dialogue_id", "turn", "user_turn", "state", "gold", "active_intents", "requested"]
    fields = [TURNS.field(name) for name in names]
    if spans:
        fields += [pa.field("gold_spans", SPANS), pa.field("pred_spans", SPANS)]
    return pa.table({f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in fields}, pa.schema(fields))


def read_predictions(source: Source, format: str | None = None) -> Predictions:
    """Predictions in the named format, or in the first that recognises the file.

    Raises JobError for an unknown format, DataError where no format fits or predictions and gold do not.
    """
    from dialoom import registry

    if not source.predictions.exists():
        raise DataError("there is no such file or folder", where=str(source.predictions))
    if format is not None:
        chosen: Format = registry.find("formats", format)
        return chosen.read(source)
    for name in registry.names("formats"):
        candidate: Format = registry.find("formats", name)
        if candidate.detect(source.predictions):
            return candidate.read(source)
    known = ", ".join(registry.names("formats"))
    raise DataError("not in a known format", where=str(source.predictions), hint=f"Known formats: {known}.")
