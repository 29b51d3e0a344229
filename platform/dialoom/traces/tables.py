"""The explicit Arrow schemas of a run's traces, version 1. ``docs/traces.md`` explains every column.

Text columns are large strings (a file may hold over 2 GiB of text). Good and bad units share one schema. A new version
raises ``VERSION``, and :mod:`dialoom.traces.migrate` gains a step that brings older files up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

VERSION = 1

TEXT = pa.large_string()
KEY = [
    pa.field("dialogue_id", TEXT, nullable=False),
    pa.field("method", TEXT, nullable=False),
    pa.field("cell", TEXT, nullable=False),
    pa.field("trial", pa.int32(), nullable=False),
]

SLOT_VALUE = pa.struct([("service", TEXT), ("slot", TEXT), ("value", TEXT)])
SLOT_VALUES = pa.list_(SLOT_VALUE)
INTENT = pa.struct([("service", TEXT), ("intent", TEXT)])
GOLD_FRAME = pa.struct(
    [
        ("service", TEXT),
        ("active_intent", TEXT),
        ("requested_slots", pa.list_(TEXT)),
        ("slot_values", pa.list_(pa.struct([("slot", TEXT), ("values", pa.list_(TEXT))]))),
    ]
)
FIRED = pa.struct(
    [
        ("rule", TEXT),
        ("call", pa.int32()),
        ("service", TEXT),
        ("slot", TEXT),
        ("value", TEXT),
        ("expected", TEXT),
    ]
)
SUPPORT = pa.struct(
    [("service", TEXT), ("slot", TEXT), ("turn", pa.int32()), ("start", pa.int32()), ("end", pa.int32())]
)

_TOKENS = [
    pa.field("prompt_tokens", pa.int64()),
    pa.field("cached_tokens", pa.int64()),
    pa.field("output_tokens", pa.int64()),
    pa.field("reasoning_tokens", pa.int64()),
    pa.field("queue_s", pa.float64()),
    pa.field("run_s", pa.float64()),
    pa.field("latency_s", pa.float64()),
]

DIALOGUES = pa.schema(
    [
        *KEY,
        pa.field("outcome", TEXT, nullable=False),
        pa.field("content_hash", TEXT),
        pa.field("source", TEXT),
        pa.field("language", TEXT),
        pa.field("services", pa.list_(TEXT)),
        pa.field("n_turns", pa.int32()),
        pa.field("n_user_turns", pa.int32()),
        pa.field("has_gold", pa.bool_()),
        pa.field("n_calls", pa.int32()),
        pa.field("n_replayed", pa.int32()),
        *_TOKENS,
        pa.field("paid_prompt_tokens", pa.int64()),
        pa.field("paid_cached_tokens", pa.int64()),
        pa.field("paid_output_tokens", pa.int64()),
        pa.field("cost_attributed_usd", pa.float64()),
        pa.field("cost_paid_usd", pa.float64()),
        pa.field("in_flight", pa.int32()),
        pa.field("error_kind", TEXT),
        pa.field("error", TEXT),
        pa.field("error_where", TEXT),
        pa.field("extra", TEXT),
        pa.field("worker", TEXT),
        pa.field("epoch", pa.int32()),
        pa.field("started_at", pa.timestamp("us", tz="UTC")),
        pa.field("finished_at", pa.timestamp("us", tz="UTC")),
    ],
    metadata={"dialoom.table": "dialogues", "dialoom.version": str(VERSION)},
)

TURNS = pa.schema(
    [
        *KEY,
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("user_turn", pa.int32()),
        pa.field("outcome", TEXT),
        pa.field("system_text", TEXT),
        pa.field("user_text", TEXT),
        pa.field("intents", pa.list_(INTENT)),
        pa.field("active_intents", pa.list_(INTENT)),
        pa.field("requested", pa.list_(pa.struct([("service", TEXT), ("slot", TEXT)]))),
        pa.field("delta", SLOT_VALUES),
        pa.field("state", SLOT_VALUES),
        pa.field("first_proposal", SLOT_VALUES),
        pa.field("fired", pa.list_(FIRED)),
        pa.field("support", pa.list_(SUPPORT)),
        pa.field("gold", pa.list_(GOLD_FRAME)),
        pa.field("n_calls", pa.int32()),
        *_TOKENS,
        pa.field("output", TEXT),
        pa.field("error", TEXT),
    ],
    metadata={"dialoom.table": "turns", "dialoom.version": str(VERSION)},
)

CALLS = pa.schema(
    [
        *KEY,
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("call", pa.int32(), nullable=False),
        pa.field("digest", TEXT, nullable=False),
        pa.field("replayed", pa.bool_()),
        pa.field("role", TEXT),
        pa.field("engine", TEXT),
        pa.field("replica", TEXT),
        pa.field("model", TEXT),
        pa.field("step", TEXT),
        pa.field("message_ids", pa.list_(TEXT)),
        pa.field("answer_schema_id", TEXT),
        pa.field("sampling", TEXT),
        pa.field("text", TEXT),
        pa.field("reasoning", TEXT),
        pa.field("tool_calls", TEXT),
        pa.field("action", TEXT),
        pa.field("observation", TEXT),
        pa.field("rules", pa.list_(TEXT)),
        pa.field("finish_reason", TEXT),
        *_TOKENS,
        pa.field("attempts", pa.int32()),
        pa.field("error", TEXT),
        pa.field("sent_at", pa.timestamp("us", tz="UTC")),
    ],
    metadata={"dialoom.table": "calls", "dialoom.version": str(VERSION)},
)

MESSAGES = pa.schema(
    [
        pa.field("message_id", TEXT, nullable=False),
        pa.field("role", TEXT),
        pa.field("content", TEXT),
    ],
    metadata={"dialoom.table": "messages", "dialoom.version": str(VERSION)},
)

TABLES: Mapping[str, pa.Schema] = {"dialogues": DIALOGUES, "turns": TURNS, "calls": CALLS, "messages": MESSAGES}
"""Every table by name. Each is one Parquet file (or several) in the run's ``traces`` folder."""


def columns(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows as a record batch of exactly ``schema``; a missing field is null.

    Raises KeyError for an unknown field, ValueError for null where the schema has none, and TypeError, ValueError or
    OverflowError for a value of another type. Strings must already be storable (:func:`dialoom.text.storable`).
    """
    known = set(schema.names)
    for row in rows:
        if not row.keys() <= known:
            raise KeyError(f"columns not in the schema: {sorted(row.keys() - known)}")
    # As structs Arrow takes the fields out of the rows itself, three times as fast as column by column.
    arrays = pa.array(rows, type=pa.struct(list(schema)), size=len(rows)).flatten()
    for field, array in zip(schema, arrays, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(f"column '{field.name}' is null in a row")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
