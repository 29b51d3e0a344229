"""From rows in the form of the traces' turns table to the score input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dialoom.errors import DataError
from dialoom.metric import Bools, Floats, Ints
from dialoom.metrics._columns import (
    Interned,
    Lists,
    encode,
    find_keys,
    joined,
    last_of_each,
    latest,
    lists,
    spread,
    until_next,
)
from dialoom.metrics._input import NO_VALUE, Frames, Rows, ScoreInput
from dialoom.metrics._log import Firings, TurnLog
from dialoom.schema import Service
from dialoom.state import DELETE, SlotRef

NUMBERS = (
    "n_calls",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "queue_s",
    "run_s",
    "latency_s",
)
SPANS = pa.list_(pa.struct([("service", pa.large_string()), ("spans", pa.list_(pa.large_string()))]))
"""Type of the optional columns ``gold_spans`` and ``pred_spans``: slot and text in turns, one list a frame."""


def build(
    table: pa.Table,
    schema: Mapping[str, Service] | None = None,
    *,
    seen: frozenset[str] | None = None,
    whole_state: bool | None = None,
    dialogue_ids: Sequence[tuple[str, int]] | None = None,
    goals: Mapping[str, Iterable[str]] | None = None,
) -> ScoreInput:
    """The score input of the turns in ``table`` (columns of the turns table; absent ones are taken as null).

    ``dialogue_ids`` are all scored dialogues as (id, trial), in case some have no row; ``whole_state`` says whether
    gold is the whole state (MultiWOZ) or active services only (SGD); ``None`` looks whether gold has intents. ``goals``
    are the domains of the user's goal by dialogue id.
    Raises DataError where a turn of a dialogue comes twice.
    """
    data = _Builder(table, dialogue_ids).build(schema or {}, seen, whole_state)
    if goals is None:
        return data
    by_id = {dialogue_id: frozenset(domains) for dialogue_id, domains in goals.items()}
    return replace(data, goals=[by_id.get(i) for i in data.dialogue_ids])


@dataclass
class _Gold:
    """Gold frames over all rows, and the filled slots of each (CSR over frames)."""

    row: Ints
    service: Ints
    offsets: Ints
    slot: Ints
    value: Ints


class _Builder:
    def __init__(self, table: pa.Table, dialogue_ids: Sequence[tuple[str, int]] | None) -> None:
        self.table, self.dialogues, self.dialogue = _ordered(table, dialogue_ids)
        self.n = len(self.dialogue)
        self.state = self._lists("state")
        self.gold = self._lists("gold")
        self.intents = self._lists("active_intents")
        self.requested = self._lists("requested")
        self.proposal = self._lists("first_proposal")
        self.fired = self._lists("fired")
        self.lists = Interned([()])
        self._encode()

    def _lists(self, name: str) -> Lists | None:
        if name not in self.table.column_names:
            return None
        found = lists(self.table.column(name))
        return found if found.valid.any() else None

    def _encode(self) -> None:
        """Every service, slot, value and intent text as an id."""
        empty = pa.array([], pa.large_string())
        state = self.state.fields() if self.state else [empty] * 3
        frames = self.gold.fields() if self.gold else [empty] * 4
        intents = self.intents.fields() if self.intents else [empty] * 2
        requested = self.requested.fields() if self.requested else [empty] * 2
        proposal = self.proposal.fields() if self.proposal else [empty] * 3
        fired = self.fired.fields() if self.fired else [empty] * 6
        self.gold_requested = lists(frames[2]) if self.gold else None
        self.gold_slots = lists(frames[3]) if self.gold else None
        slot_fields = self.gold_slots.fields() if self.gold_slots else [empty, empty]
        self.gold_values = lists(slot_fields[1]) if self.gold_slots else None
        texts = self.gold_values.entries if self.gold_values else empty
        self.services, services = encode([state[0], frames[0], intents[0], requested[0], proposal[0], fired[2]])
        names, slots = encode([state[1], slot_fields[0], proposal[1], fired[3]])
        special = pa.array([DELETE, NO_VALUE], pa.large_string())
        self.values, values = encode([state[2], texts, proposal[2], fired[4], special])
        self.intent_names, (gold_intent, pred_intent) = encode([frames[1], intents[1]])
        self.gold_intent = np.where(frames[1].is_valid().to_numpy(zero_copy_only=False), gold_intent, -1)
        self.pred_intent, self.intent_service = pred_intent, services[2]
        self.requested_service = services[3]
        self.state_value, self.gold_value, self.proposal_value, self.fired_value, self.special = values
        self.rules, (self.fired_rule,) = encode([fired[0]])
        self.frame_service = services[1]
        self.fired_named = (slots[3] != _code(names, "")) & (services[5] != _code(self.services, ""))
        in_frame = np.repeat(services[1], np.diff(self.gold_slots.offsets)) if self.gold_slots else services[1]
        width = max(len(names), 1)
        keys, (self.state_slot, self.gold_slot, self.proposal_slot, self.fired_slot) = joined(
            [
                service * width + slot
                for service, slot in zip((services[0], in_frame, services[4], services[5]), slots, strict=True)
            ]
        )
        self.slots = [SlotRef(self.services[k // width], names[k % width]) for k in keys.tolist()]
        self.slot_service = keys // width

    def build(self, schema: Mapping[str, Service], seen: frozenset[str] | None, whole: bool | None) -> ScoreInput:
        labelled = self.gold.valid if self.gold else np.zeros(self.n, np.bool_)
        label = np.where(labelled, np.cumsum(labelled) - 1, -1)
        sets, gold = self._gold_sets()
        whole_state = bool((self.gold_intent < 0).all()) if whole is None else whole
        gold_rows = self._direct(gold) if whole_state else self._carried(gold)
        frames = self._frames(label)
        order, ids = np.flatnonzero(labelled), [d for d, _ in self.dialogues]
        clusters = Interned()
        return ScoreInput(
            services=self.services,
            slots=self.slots,
            slot_service=self.slot_service,
            values=self.values,
            sets=sets,
            intents=self.intent_names,
            dialogue_ids=ids,
            trials=[trial for _, trial in self.dialogues],
            clusters=np.array([clusters.id(i) for i in ids], dtype=np.int64),
            dialogue=self.dialogue[order],
            user_turn=self._ints("user_turn")[order],
            turn=self._ints("turn")[order],
            gold=_relabelled(gold_rows, label),
            pred=_relabelled(self._predicted(), label),
            frames=frames,
            lists=self.lists.things,
            schema=schema,
            seen=seen,
            whole_state=whole_state,
            deleted=int(self.special[0]),
            none=int(self.special[1]),
            log=self._log(label) if "outcome" in self.table.column_names else None,
        )

    def _ints(self, name: str) -> Ints:
        if name not in self.table.column_names:
            return np.full(self.n, -1, dtype=np.int64)
        return self.table.column(name).fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]

    def _gold_sets(self) -> tuple[list[tuple[int, ...]], _Gold]:
        """Gold values as set ids; slots without any value are dropped."""
        none = np.empty(0, dtype=np.int64)
        if self.gold is None or self.gold_slots is None or self.gold_values is None:
            return [], _Gold(none, none, np.zeros(1, np.int64), none, none)
        offsets, lengths = self.gold_values.offsets, np.diff(self.gold_values.offsets)
        value = np.full(len(lengths), -1, dtype=np.int64)
        filled = lengths > 0
        value[filled] = self.gold_value[offsets[:-1][filled]]
        sets = Interned()
        for i in np.flatnonzero(lengths > 1).tolist():
            forms = tuple(dict.fromkeys(self.gold_value[offsets[i] : offsets[i + 1]].tolist()))
            if len(forms) > 1:
                value[i] = len(self.values) + sets.id(forms)
        before = np.concatenate([[0], np.cumsum(filled)]).astype(np.int64)
        frame_offsets = before[self.gold_slots.offsets]
        gold = _Gold(self.gold.rows, self.frame_service, frame_offsets, self.gold_slot[filled], value[filled])
        return sets.things, gold

    def _direct(self, gold: _Gold) -> Rows:
        """Gold as annotated: each frame's slots at its own turn."""
        return self._sorted(np.repeat(gold.row, np.diff(gold.offsets)), gold.slot, gold.value)

    def _carried(self, gold: _Gold) -> Rows:
        """The whole gold state: each frame holds until the same service's next frame."""
        order = np.lexsort((gold.row, gold.service, self.dialogue[gold.row]))
        row, service = gold.row[order], gold.service[order]
        hold = until_next(row, service, self.dialogue)
        frame, turn = np.repeat(order, hold), spread(row, hold)
        lengths = np.diff(gold.offsets)[frame]
        at = spread(gold.offsets[:-1][frame], lengths)
        return self._sorted(np.repeat(turn, lengths), gold.slot[at], gold.value[at])

    def _predicted(self) -> Rows:
        """The predicted state of every row; a row without one keeps the dialogue's last."""
        if self.state is None:
            none = np.empty(0, dtype=np.int64)
            return Rows(none, none, none)
        source = latest(self.state.valid, self.dialogue)
        lengths = np.where(source >= 0, np.diff(self.state.offsets)[source], 0)
        at = spread(self.state.offsets[:-1][source], lengths)
        return self._sorted(np.repeat(np.arange(self.n), lengths), self.state_slot[at], self.state_value[at])

    def _sorted(self, turn: Ints, slot: Ints, value: Ints) -> Rows:
        key = turn * max(len(self.slots), 1) + slot
        if len(key) > 1 and not (key[1:] > key[:-1]).all():
            keep = last_of_each(key)
            turn, slot, value = turn[keep], slot[keep], value[keep]
        return Rows(turn, slot, value)

    def _frames(self, label: Ints) -> Frames:
        none = np.empty(0, dtype=np.int64)
        if self.gold is None:
            return Frames(none, none, none, none, none, none, none, none)
        row = self.gold.rows
        key = row * len(self.services) + self.frame_service
        order = np.argsort(key, kind="stable")
        key, row = key[order], row[order]
        return Frames(
            turn=label[row],
            service=self.frame_service[order],
            gold_intent=self.gold_intent[order],
            pred_intent=self._intents_at(row, self.frame_service[order]),
            gold_requested=self._requested_gold()[order],
            pred_requested=self._requested_pred(key),
            gold_spans=self._spans("gold_spans", key),
            pred_spans=self._spans("pred_spans", key),
        )

    def _intents_at(self, row: Ints, service: Ints) -> Ints:
        """The intent in force for ``service`` at ``row``: "NONE" where the method lists none, -1 without the column."""
        if self.intents is None:
            return np.full(len(row), -1, dtype=np.int64)
        if "NONE" not in self.intent_names:
            self.intent_names = [*self.intent_names, "NONE"]
        width = len(self.services)
        keys = self.intents.rows * width + self.intent_service
        keep = last_of_each(keys)
        source = latest(self.intents.valid, self.dialogue)[row]
        at = find_keys(keys[keep], np.where(source >= 0, source * width + service, -1))
        found = np.append(self.pred_intent[keep], 0)[at]
        return np.where(at >= 0, found, self.intent_names.index("NONE"))

    def _requested_gold(self) -> Ints:
        assert self.gold is not None and self.gold_requested is not None
        ids = np.where(self.gold_requested.valid, 0, -1).astype(np.int64)
        offsets, texts = self.gold_requested.offsets, self.gold_requested.entries
        for i in np.flatnonzero(np.diff(offsets)).tolist():
            ids[i] = self.lists.id(tuple(sorted(texts[offsets[i] : offsets[i + 1]].to_pylist())))
        return ids

    def _requested_pred(self, keys: Ints) -> Ints:
        if self.requested is None:
            return np.full(len(keys), -1, dtype=np.int64)
        names: list[Any] = self.requested.fields()[1].to_pylist()
        found: dict[int, list[str]] = {}
        at = self.requested.rows * len(self.services) + self.requested_service
        for key, name in zip(at.tolist(), names, strict=True):
            found.setdefault(key, []).append(name)
        ids = {key: self.lists.id(tuple(sorted(asked))) for key, asked in found.items()}
        return np.fromiter((ids.get(k, 0) for k in keys.tolist()), np.int64, len(keys))

    def _spans(self, column: str, keys: Ints) -> Ints:
        if column not in self.table.column_names:
            return np.full(len(keys), -1, dtype=np.int64)
        service = {name: i for i, name in enumerate(self.services)}
        found: dict[int, int] = {}
        for row, frames in enumerate(self.table.column(column).to_pylist()):
            for frame in frames or ():
                if frame["spans"] is not None and frame["service"] in service:
                    key = row * len(self.services) + service[frame["service"]]
                    found[key] = self.lists.id(tuple(frame["spans"]))
        return np.fromiter((found.get(k, -1) for k in keys.tolist()), np.int64, len(keys))

    def _log(self, label: Ints) -> TurnLog:
        outcomes, (outcome,) = encode([self.table.column("outcome").combine_chunks()])
        none = np.empty(0, dtype=np.int64)
        fired_row = self.fired.rows if self.fired else none
        firings = Firings(
            row=fired_row,
            rule=self.fired_rule,
            label=label[fired_row],
            slot=np.where(self.fired_named, self.fired_slot, -1),
            value=np.where(self.fired_named, self.fired_value, -1),
        )
        return TurnLog(
            dialogue=self.dialogue,
            outcome=outcome,
            outcomes=outcomes,
            label=label,
            numbers={name: self._numbers(name) for name in NUMBERS},
            rules=self.rules,
            firings=firings,
            proposal_row=self.proposal.rows if self.proposal else none,
            proposal_slot=self.proposal_slot,
            proposal_value=self.proposal_value,
        )

    def _numbers(self, name: str) -> Floats:
        if name not in self.table.column_names:
            return np.full(self.n, np.nan)
        numbers: Floats = self.table.column(name).cast(pa.float64()).fill_null(float("nan")).to_numpy()
        return numbers


def _code(texts: Sequence[str], text: str) -> int:
    return texts.index(text) if text in texts else -1


def _relabelled(rows: Rows, label: Ints) -> Rows:
    """Rows of all turns cut to the labelled ones, and numbered by them."""
    turn = label[rows.turn]
    inside: Bools = turn >= 0
    return Rows(turn[inside], rows.slot[inside], rows.value[inside])


def _ordered(
    table: pa.Table, dialogue_ids: Sequence[tuple[str, int]] | None
) -> tuple[pa.Table, list[tuple[str, int]], Ints]:
    """``table`` by dialogue and turn, the dialogues as (id, trial), and each row's dialogue index."""
    names, (name,) = encode([table.column("dialogue_id").combine_chunks()])
    trials = table.column("trial").to_numpy() if "trial" in table.column_names else np.zeros(len(table), np.int64)
    width = int(trials.max()) + 1 if len(trials) else 1
    keys, dialogue = np.unique(name * width + trials, return_inverse=True)
    known = [(names[k // width], int(k % width)) for k in keys.tolist()]
    present = set(known)
    known += [d for d in dialogue_ids or () if d not in present]
    turn = table.column("turn").to_numpy()
    order = np.lexsort((turn, dialogue))
    sorted_key = np.stack([dialogue[order], turn[order]])
    twice = np.flatnonzero((sorted_key[:, 1:] == sorted_key[:, :-1]).all(axis=0))
    if len(twice):
        where = f"dialogue {known[sorted_key[0, twice[0]]][0]}, turn {sorted_key[1, twice[0]]}"
        raise DataError("the turn comes twice", where=where, hint="Score each run folder, or each file, by itself.")
    if (np.diff(order) < 0).any():
        table = table.take(pa.array(order))
    return table, known, dialogue[order].astype(np.int64)
