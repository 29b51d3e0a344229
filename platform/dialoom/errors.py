"""The errors dialoom raises on purpose: one class per boundary, each with what was wrong, where, and what to do.

``str(error)`` is one line and safe to print; ``hint`` is the next step for the person who reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dialoom.text import printable


class DialoomError(Exception):
    """Base of every error that is raised on purpose.

    ``kind`` is the stable identifier written to traces (``error_kind``).
    """

    kind = "error"

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = printable(what, limit=600)
        self.where = printable(where, limit=300)
        self.hint = printable(hint, limit=600)
        super().__init__(what, where, hint)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.hint, dict(self.__dict__)))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}. {self.hint}" if self.hint else head


def _rebuild(cls: type[DialoomError], what: str, where: str, hint: str, fields: dict[str, object]) -> DialoomError:
    error = cls.__new__(cls)
    DialoomError.__init__(error, what, where=where, hint=hint)
    error.__dict__.update(fields)
    return error


class JobError(DialoomError):
    """A job file, command line or setting is wrong; nothing was started."""

    kind = "job"


class DataError(DialoomError):
    """An input record or file cannot be read."""

    kind = "bad_input"


class SchemaError(DialoomError):
    """A domain schema is wrong or does not fit the data."""

    kind = "schema"


class StorageError(DialoomError):
    """The run folder cannot be written or read (full disk, missing rights, damaged file)."""

    kind = "storage"


class FetchError(DialoomError):
    """Public data cannot be downloaded, or what came is not what it should be; the target folder is as it was."""

    kind = "fetch"


class TrackingError(DialoomError):
    """The tracking server cannot be reached or refuses; never costs a result."""

    kind = "tracking"


class RunRefused(DialoomError):
    """A run folder exists and belongs to another job digest, or is in use."""

    kind = "refused"


class LimitReached(DialoomError):
    """A budget of the job or of one unit is spent. ``scope`` is ``job`` or ``unit``."""

    kind = "limit"

    def __init__(self, what: str, *, where: str = "", hint: str = "", scope: str = "unit") -> None:
        super().__init__(what, where=where, hint=hint)
        self.scope = scope


class Interrupted(DialoomError):
    """The run is draining: no new call is sent."""

    kind = "interrupted"


class EngineError(DialoomError):
    """An engine cannot answer. ``retriable`` says whether the same call may be sent again."""

    kind = "engine"
    retriable = False


class EngineDown(EngineError):
    """The engine process or endpoint is gone or does not answer; the call may be sent elsewhere."""

    kind = "engine_down"
    retriable = True


class EngineCrashed(EngineDown):
    """The engine's process ended while it had the call. ``under_way``: it had begun, and may be to blame."""

    kind = "engine_crashed"

    def __init__(self, what: str, *, where: str = "", hint: str = "", under_way: bool = True) -> None:
        super().__init__(what, where=where, hint=hint)
        self.under_way = under_way


class NotRecorded(EngineError):
    """A replay met a call that its call log does not hold."""

    kind = "not_recorded"


class PoisonCall(EngineError):
    """The engine's process ended again and again while it answered this one call."""

    kind = "poison"


class EngineBusy(EngineError):
    """The endpoint asks to wait (429, 503). ``retry_after_s`` is its own figure, if it gave one."""

    kind = "engine_busy"
    retriable = True

    def __init__(self, what: str, *, where: str = "", hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.retry_after_s = retry_after_s


class EngineRefused(EngineError):
    """The endpoint refuses for a reason that repeating does not change (wrong key, unknown model).

    Not ``certain``: it may be meant for this one call alone (HTTP 403, 404); what else the engine answered decides.
    """

    kind = "engine_refused"

    def __init__(self, what: str, *, where: str = "", hint: str = "", certain: bool = True) -> None:
        super().__init__(what, where=where, hint=hint)
        self.certain = certain


class RequestRefused(EngineError):
    """This one request is refused (HTTP 400 or 422, moderation); other requests may pass."""

    kind = "request_refused"


class PromptTooLong(EngineError):
    """The prompt and the answer's room do not fit the model's context."""

    kind = "prompt_too_long"


@dataclass(frozen=True, slots=True)
class BadInput:
    """One input record that could not become a dialogue; it still gets a row.

    ``dialogue_id`` is the record's own id where it has one, else ``<file>#<position>``.
    """

    dialogue_id: str
    where: str
    what: str
    hint: str = ""
    content_hash: str = ""
