"""What the driver knows of units and dialogues, on disk: its memory stays flat however long the input is.

The file is scratch: it is built from the parts at every start and removed at the end; after a kill, at the next start.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dialoom.errors import StorageError
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder, storage_errors
from dialoom.runtime.scratch import Scratch
from dialoom.unit import UnitKey


class Index:
    """Units that are done, and the dialogue ids seen in this read."""

    def __init__(self) -> None:
        with storage_errors(Path(tempfile.gettempdir())):
            self._scratch = Scratch("dialoom-index-")
        self._db = sqlite3.connect(self._scratch.path / "index.sqlite", isolation_level=None)
        self._db.executescript(
            """
            PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-4096;
            CREATE TABLE unit (dialogue_id TEXT, method TEXT, cell TEXT, trial INT, hash TEXT, outcome TEXT,
                PRIMARY KEY (dialogue_id, method, cell, trial)) WITHOUT ROWID;
            CREATE TABLE seen (dialogue_id TEXT PRIMARY KEY, good INT) WITHOUT ROWID;
            BEGIN;
            """
        )

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        with self._errors():
            return self._db.execute(statement, values)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            hint = "The scratch file lies in TMPDIR: free some space there, or set TMPDIR to another folder."
            raise StorageError(f"the index of units: {error}", where=str(self._scratch.path), hint=hint) from error

    def begin_read(self) -> None:
        """Forget the dialogue ids seen: the input is read from its beginning."""
        self._db.execute("DELETE FROM seen")

    def close(self) -> None:
        """Remove the file."""
        self._db.close()
        self._scratch.close()

    def first_seen(self, dialogue_id: str, *, good: bool) -> bool:
        """Whether this id comes up for the first time in this read. Remembers it, and whether a dialogue that could be
        read has it as its own."""
        cursor = self._execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (dialogue_id, good))
        return cursor.rowcount == 1

    def first_good(self, dialogue_id: str) -> bool:
        """Whether an id that was seen before now comes up with a dialogue that can be read for the first time."""
        cursor = self._execute("UPDATE seen SET good=1 WHERE dialogue_id=? AND NOT good", (dialogue_id,))
        return cursor.rowcount == 1

    def record(self, units: Iterable[tuple[UnitKey, str, Outcome]]) -> None:
        """Note committed units: (key, content hash, outcome). An owed outcome never replaces one that is not."""
        rows = [(*key, content_hash, outcome.value) for key, content_hash, outcome in units]
        with self._errors():
            self._db.executemany(
                "INSERT INTO unit VALUES (?,?,?,?,?,?)"
                " ON CONFLICT DO UPDATE SET hash=excluded.hash, outcome=excluded.outcome"
                f" WHERE unit.outcome IN ({_OWED}) OR excluded.outcome NOT IN ({_OWED})",
                rows,
            )

    def owed(self, keys: Iterable[UnitKey], content_hash: str) -> list[UnitKey]:
        """Those of ``keys`` that are not done for this content."""
        return [key for key in keys if not self._done(key, content_hash)]

    def _done(self, key: UnitKey, content_hash: str) -> bool:
        row = self._execute(
            "SELECT hash, outcome FROM unit WHERE dialogue_id=? AND method=? AND cell=? AND trial=?", key
        ).fetchone()
        return row is not None and row[0] == content_hash and not Outcome(row[1]).owed

    def gone(self) -> list[str]:
        """Ids under which bad records have rows, that this read, now at its end, did not meet again: records that were
        mended or taken away."""
        rows = self._execute(
            "SELECT DISTINCT dialogue_id FROM unit"
            " WHERE outcome=? AND dialogue_id NOT IN (SELECT dialogue_id FROM seen)",
            (Outcome.BAD_INPUT.value,),
        )
        return [dialogue_id for (dialogue_id,) in rows]

    def counts(self) -> dict[str, int]:
        """Outcome to number of units."""
        return dict(self._execute("SELECT outcome, count(*) FROM unit GROUP BY outcome").fetchall())

    def load(self, folder: RunFolder, names: Iterable[str] | None = None) -> list[str]:
        """Take in committed parts (all of them by default). Returns the names of parts that cannot be read."""
        damaged = []
        for name in folder.names("parts", parts.SUFFIX) if names is None else names:
            try:
                self.record(unit_keys(folder, name))
            except StorageError:
                damaged.append(name)
        return damaged


_OWED = ", ".join(f"'{o.value}'" for o in Outcome if o.owed)


def unit_keys(folder: RunFolder, name: str) -> Iterator[tuple[UnitKey, str, Outcome]]:
    """(key, content hash, outcome) of every unit of a part. Raises StorageError for a damaged one."""
    table = parts.decode(folder.read(name) or b"", ["dialogues"])["dialogues"]
    columns = table.select(["dialogue_id", "method", "cell", "trial", "content_hash", "outcome"]).to_pydict()
    for dialogue_id, method, cell, trial, content_hash, outcome in zip(*columns.values(), strict=True):
        yield UnitKey(dialogue_id, method, cell, trial), content_hash or "", Outcome(outcome)
