"""The same turns with other slot names and values: how evaluators that normalise are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dialoom.metric import Ints
from dialoom.metrics._columns import Interned, last_of_each, numbered
from dialoom.metrics._input import NO_VALUE, Rows, ScoreInput
from dialoom.state import DELETE, SlotRef

RenameSlot = Callable[[SlotRef], SlotRef | None]
"""The new name of a slot; ``None`` leaves it out."""
GoldForms = Callable[[SlotRef, tuple[str, ...]], tuple[str, ...]]
"""New accepted forms of a gold value, of the new slot; empty leaves the slot out."""
PredValue = Callable[[SlotRef, str], str | None]
"""The new predicted value, of the new slot; ``None`` leaves the slot out."""


def rewrite(data: ScoreInput, slot: RenameSlot, gold: GoldForms, pred: PredValue) -> ScoreInput:
    """``data`` with slots and values mapped, each distinct (slot, value) once. Frames and log keep only what still
    fits: of two slots that get one name, one stays.
    """
    renamed = [slot(ref) for ref in data.slots]
    refs, values = Interned(), Interned([DELETE, NO_VALUE])
    slot_ids = np.array([-1 if r is None else refs.id(r) for r in renamed] or [-1], dtype=np.int64)

    def forms(old_slot: int, value: int) -> tuple[int, ...] | None:
        ref = renamed[old_slot]
        if ref is None:
            return None
        new = gold(ref, tuple(data.values[i] for i in data.accepted(value)))
        return tuple(dict.fromkeys(values.id(text) for text in new)) or None

    def single(old_slot: int, value: int) -> tuple[int, ...] | None:
        ref = renamed[old_slot]
        text = None if ref is None else pred(ref, data.values[value])
        return None if text is None else (values.id(text),)

    gold_forms, gold_at = _mapped(data.gold, forms)
    pred_forms, pred_at = _mapped(data.pred, single)
    sets = Interned()
    gold_ids = [_value_id(f, len(values.ids), sets) for f in gold_forms]
    pred_ids = [-1 if f is None else f[0] for f in pred_forms]
    services = list(data.services)
    for ref in refs.things:
        if ref.service not in services:
            services.append(ref.service)
    n_slots = len(refs.ids)
    return replace(
        data,
        services=services,
        slots=refs.things,
        slot_service=np.array([services.index(r.service) for r in refs.things], dtype=np.int64),
        values=values.things,
        sets=sets.things,
        deleted=values.ids[DELETE],
        none=values.ids[NO_VALUE],
        gold=_rows(data.gold, slot_ids, np.array(gold_ids, dtype=np.int64), gold_at, n_slots),
        pred=_rows(data.pred, slot_ids, np.array(pred_ids, dtype=np.int64), pred_at, n_slots),
        log=None,
    )


def _mapped(
    rows: Rows, function: Callable[[int, int], tuple[int, ...] | None]
) -> tuple[list[tuple[int, ...] | None], Ints]:
    """``function`` of every distinct (slot, value), and each row's index into the results."""
    width = int(rows.value.max(initial=0)) + 1
    keys, at = numbered(rows.slot * width + rows.value)
    return [function(k // width, k % width) for k in keys.tolist()], at


def _value_id(forms: tuple[int, ...] | None, n_values: int, sets: Interned) -> int:
    if forms is None:
        return -1
    return forms[0] if len(forms) == 1 else n_values + sets.id(forms)


def _rows(rows: Rows, slot_ids: Ints, value_ids: Ints, at: Ints, n_slots: int) -> Rows:
    slot, value = slot_ids[rows.slot], np.append(value_ids, -1)[at]
    kept = np.flatnonzero((slot >= 0) & (value >= 0))
    turn, slot, value = rows.turn[kept], slot[kept], value[kept]
    key = turn * max(n_slots, 1) + slot
    if len(key) > 1 and not (key[1:] > key[:-1]).all():
        last = last_of_each(key)
        turn, slot, value = turn[last], slot[last], value[last]
    return Rows(turn, slot, value)
