"""What an endpoint's failure means: every HTTP status and error body as one of dialoom's engine errors."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

import orjson

from dialoom.errors import EngineBusy, EngineDown, EngineError, EngineRefused, PromptTooLong, RequestRefused
from dialoom.registry import did_you_mean

_TOO_LONG = re.compile(
    r"context.{0,40}(length|window|size)|prompt (is )?too long|prompt contains .{0,40} tokens.{0,40}too large|"
    r"too many tokens|maximum number of tokens|longer than the maximum|reduce the length|must have less than|"
    r"max_new_tokens`? must be|greater than max_model_len|request too large",
    re.IGNORECASE | re.DOTALL,
)
_MORE_THAN_A_MINUTE_TAKES = re.compile("request too large", re.IGNORECASE)
"""Of a busy endpoint only this tells of the prompt: "too many tokens" are there those of all calls of the minute."""
_BUSY = frozenset({429, 503, 529})
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
_MODERATION_CODES = frozenset({"content_filter", "content_policy_violation"})
_NO_CREDIT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})


@dataclass(frozen=True, slots=True)
class Failure:
    """An endpoint's refusal: its HTTP status, headers, and the words and code of its error body.

    ``moderated``: the body tells that what the prompt says is not wanted.
    """

    status: int
    headers: Mapping[str, str]
    message: str
    code: str
    moderated: bool = False


def read_failure(status: int, headers: Mapping[str, str], body: Any) -> Failure:
    """The failure in ``body``, raw or parsed, whatever its shape."""
    if isinstance(body, bytes):
        try:
            body = orjson.loads(body)
        except orjson.JSONDecodeError:
            body = body.decode(errors="replace")
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return Failure(status, headers, str(error or "").strip(), "")
    message = (
        error.get("message") or error.get("detail") or error.get("error") or orjson.dumps(error, default=str).decode()
    )
    metadata = error.get("metadata")
    moderated = isinstance(metadata, Mapping) and ("reasons" in metadata or "flagged_input" in metadata)
    moderated |= not _MODERATION_CODES.isdisjoint((str(error.get("code")), str(error.get("type"))))
    return Failure(status, headers, str(message), str(error.get("code") or error.get("type") or ""), moderated)


def engine_error(failure: Failure, *, where: str, key_env: str, key_is_set: bool) -> EngineError:
    """The engine error that ``failure`` amounts to; 404 is left to :func:`unknown_model`."""
    status, said = failure.status, failure.message
    if failure.moderated:
        hint = "The endpoint's moderation refuses what the prompt says."
        return RequestRefused(f"HTTP {status}: {said}", where=where, hint=hint)
    if status == 401:
        hint = f"Set {key_env} to a valid key." if key_env else "Name the key's variable in api_key_env."
        state = f"the key in {key_env} is not accepted" if key_is_set else f"no key was sent: {key_env} is not set"
        return EngineRefused(f"HTTP 401: {state}" if key_env else "HTTP 401: no key was sent", where=where, hint=hint)
    if status == 403:
        hint = f"Check the rights of the key in {key_env or 'api_key_env'}."
        return EngineRefused(f"HTTP 403: {said}", where=where, hint=hint, certain=False)
    if status == 402 or failure.code in _NO_CREDIT_CODES:
        hint = "Check the account's balance, then run the job again: it goes on where it stopped."
        return EngineRefused(f"HTTP {status}: {said}", where=where, hint=hint)
    if status == 413 or ((status < 500 or status in _BUSY) and _too_long(failure)):
        return PromptTooLong(f"HTTP {status}: {said}", where=where)
    retry_after_s = parse_retry_after(failure.headers)
    if status in (429, 529) or (status == 503 and retry_after_s is not None):
        return EngineBusy(f"HTTP {status}: {said}", where=where, retry_after_s=retry_after_s)
    if status in (408, 409, 425) or status >= 500:
        return EngineDown(f"HTTP {status}: {said}", where=where, hint="Look at the endpoint's own log.")
    hint = "What the endpoint does not know can be left out: parameters with 'omit', schemas with 'structured: none'."
    return RequestRefused(f"HTTP {status}: {said}", where=where, hint=hint)


def _too_long(failure: Failure) -> bool:
    words = _MORE_THAN_A_MINUTE_TAKES if failure.status in _BUSY else _TOO_LONG
    return failure.code in _TOO_LONG_CODES or words.search(failure.message) is not None


def unknown_model(failure: Failure, model: str, offered: Sequence[str], *, where: str) -> EngineRefused:
    """The error of a 404: the model, or the whole path, is not there. ``offered`` is the endpoint's model list."""
    if offered and model not in offered:
        hint = did_you_mean(model, [*offered][:20])
        return EngineRefused(f"the endpoint has no model '{model}'", where=where, hint=hint, certain=False)
    return EngineRefused(
        f"HTTP 404: {failure.message or 'nothing is there'}",
        where=where,
        hint="Check 'model', and 'base_url': it usually ends in /v1.",
        certain=False,
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``retry-after`` (seconds or HTTP date); None where neither says."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                date = parsedate_to_datetime(value)
            except ValueError:
                continue
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
        if isfinite(seconds):
            return max(0.0, seconds)
    return None


def body_failure(body: Any) -> Failure | None:
    """The failure that some gateways report inside an answer with status 200."""
    if not isinstance(body, Mapping) or body.get("choices") or not body.get("error"):
        return None
    error = body["error"]
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return read_failure(status, {}, body)
