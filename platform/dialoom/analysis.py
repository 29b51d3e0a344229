"""What goes wrong in a run's states: which slots, why, since when, for how long; and what the validator was worth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialoom.metric import Ints
from dialoom.schema import DONTCARE, SlotType
from dialoom.state import SlotRef
from dialoom.tabular import Cell, Column, Table
from dialoom.text import fold

if TYPE_CHECKING:
    from dialoom.metrics._input import ScoreInput
    from dialoom.metrics._traces import Units

EXAMPLES = 5
"""Examples kept of each cause."""


class ErrorKind(StrEnum):
    """What a wrong slot looks like."""

    MISSED = "missed"
    SPURIOUS = "spurious"
    WRONG = "wrong value"


class Cause(StrEnum):
    """Why a slot is wrong; the first that applies, in this order.

    ``wrong service``: the value belongs to the slot of the same name of another service; ``stale``: gold had the value
    at an earlier turn; ``format``: gold's value written otherwise (case, punctuation, clock time), or not what the
    slot's type asks for; ``coreference``: a word that only points ("there", a kind of thing) instead of the value, or
    a missed value that gold copies from another slot and nobody repeats; ``grounding``: a value that is nowhere in the
    dialogue so far; ``other``: none of these.
    """

    WRONG_SERVICE = "wrong service"
    STALE = "stale"
    FORMAT = "format"
    COREFERENCE = "coreference"
    GROUNDING = "grounding"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Episode:
    """A slot that is wrong from one turn on, for ``length`` labelled turns. ``repaired``: right again later."""

    dialogue_id: str
    user_turn: int
    """Number of the labelled turn, from 0, at which it went wrong."""
    slot: SlotRef
    kind: ErrorKind
    cause: Cause
    gold: tuple[str, ...]
    pred: str | None
    length: int
    repaired: bool


@dataclass(frozen=True)
class ErrorAnalysis:
    """All error episodes of one method and cell."""

    method: str
    cell: str
    episodes: tuple[Episode, ...]
    n_dialogues: int
    n_turns: int
    wrong_slots: Mapping[SlotRef, Mapping[ErrorKind, int]]
    """Turns at which a slot is wrong, by kind."""
    gold_slots: Mapping[SlotRef, int]
    """Turns at which gold has a slot."""
    first_errors: Mapping[int, int]
    """Number of the first wrong turn (from 0) to how many dialogues."""
    validator: Table | None

    def tables(self) -> list[Table]:
        """Errors by slot, by cause, over time; the validator's value where it is known."""
        found = [self._slots(), self._causes(), self._time()]
        return found if self.validator is None else [*found, self.validator]

    def _slots(self) -> Table:
        rows: list[tuple[Cell, ...]] = [
            (ref.service, ref.slot, self.gold_slots.get(ref, 0), *(kinds.get(k, 0) for k in ErrorKind))
            for ref, kinds in sorted(self.wrong_slots.items(), key=lambda item: -sum(item[1].values()))
        ]
        columns = (Column("service"), Column("slot"), Column("gold turns", "count"))
        return Table("Wrong slots, in turns", (*columns, *(Column(k, "count") for k in ErrorKind)), tuple(rows))

    def _causes(self) -> Table:
        rows = []
        for cause in Cause:
            mine = [e for e in self.episodes if e.cause is cause]
            if mine:
                lengths = sum(e.length for e in mine) / len(mine)
                repaired = sum(e.repaired for e in mine) / len(mine)
                example = mine[0]
                shown = f"{example.slot.slot}: {example.pred} for {' / '.join(example.gold) or 'nothing'}"
                rows.append((cause.value, len(mine), len(mine) / len(self.episodes), lengths, repaired, shown))
        columns = (
            Column("cause"),
            Column("errors", "count"),
            Column("share", "share"),
            Column("turns each", "number"),
            Column("repaired", "share"),
            Column("example"),
        )
        return Table("Errors by cause, counted once where they begin", columns, tuple(rows))

    def _time(self) -> Table:
        wrong = sum(self.first_errors.values())
        rows = [("never", self.n_dialogues - wrong)]
        rows += [(str(turn + 1), count) for turn, count in sorted(self.first_errors.items())]
        return Table("First wrong turn of a dialogue", (Column("turn"), Column("dialogues", "count")), tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: counts by kind and cause, first errors, and a few examples of each cause."""
        by_cause: dict[Cause, list[Episode]] = defaultdict(list)
        for episode in self.episodes:
            by_cause[episode.cause].append(episode)
        return {
            "method": self.method,
            "cell": self.cell,
            "dialogues": self.n_dialogues,
            "turns": self.n_turns,
            "errors": len(self.episodes),
            "by_kind": dict(Counter(e.kind.value for e in self.episodes)),
            "by_cause": {c.value: len(e) for c, e in by_cause.items()},
            "by_slot": {f"{r.service}/{r.slot}": dict(k) for r, k in self.wrong_slots.items()},
            "first_errors": {str(k): v for k, v in self.first_errors.items()},
            "examples": {c.value: [_example(e) for e in found[:EXAMPLES]] for c, found in by_cause.items()},
        }


def _example(e: Episode) -> dict[str, Any]:
    place = {"dialogue_id": e.dialogue_id, "user_turn": e.user_turn, "service": e.slot.service, "slot": e.slot.slot}
    return {**place, "kind": e.kind.value, "gold": list(e.gold), "pred": e.pred, "turns": e.length}


def analyse_run(run_dir: Path) -> list[ErrorAnalysis]:
    """Error analysis of every method and cell of a run. Raises StorageError where traces are missing."""
    from dialoom.metrics._traces import TURN_COLUMNS, read_inputs

    columns = (*TURN_COLUMNS, "system_text", "user_text")
    return [analyse(units, data) for units, data, _ in read_inputs(run_dir, columns)]


def analyse(units: Units, data: ScoreInput) -> ErrorAnalysis:
    """Error analysis of one score input; ``units.turns`` holds the texts."""
    rows = data.aligned
    wrong = np.flatnonzero(~rows.match)
    kinds = np.select([rows.pred[wrong] < 0, rows.gold[wrong] < 0], [0, 1], 2)
    counted: dict[SlotRef, dict[ErrorKind, int]] = defaultdict(dict)
    for (slot, kind), n in Counter(zip(rows.slot[wrong].tolist(), kinds.tolist(), strict=True)).items():
        counted[data.slots[slot]][list(ErrorKind)[kind]] = n
    gold = np.bincount(data.gold.slot, minlength=len(data.slots))
    first = np.flatnonzero(~data.exact_turns)
    firsts = first[np.unique(data.dialogue[first], return_index=True)[1]]
    return ErrorAnalysis(
        method=units.method,
        cell=units.cell,
        episodes=tuple(_episodes(units, data, wrong)),
        n_dialogues=len(np.unique(data.dialogue)),
        n_turns=data.n_turns,
        wrong_slots=dict(counted),
        gold_slots={ref: int(n) for ref, n in zip(data.slots, gold, strict=True) if n},
        first_errors=dict(sorted(Counter(data.position[firsts].tolist()).items())),
        validator=_validator(data),
    )


def _episodes(units: Units, data: ScoreInput, wrong: Ints) -> Iterable[Episode]:
    """Runs of labelled turns at which one slot of one dialogue is wrong, in the order of dialogues and turns."""
    rows = data.aligned
    if not len(wrong):
        return
    turn, slot = rows.turn[wrong], rows.slot[wrong]
    order = np.lexsort((turn, slot, data.dialogue[turn]))
    turn, slot, wrong = turn[order], slot[order], wrong[order]
    track = data.dialogue[turn] * len(data.slots) + slot
    begins = np.append(True, (track[1:] != track[:-1]) | (turn[1:] != turn[:-1] + 1))
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(turn)))
    dialogues = _Dialogues(units, data)
    last_turn = np.searchsorted(data.dialogue, np.arange(data.n_dialogues), side="right") - 1
    found = sorted(zip(starts.tolist(), lengths.tolist(), strict=True), key=lambda e: (int(turn[e[0]]), e[0]))
    for start, length in found:
        at, row = int(turn[start]), int(wrong[start])
        gold, pred = int(rows.gold[row]), int(rows.pred[row])
        kind = ErrorKind.MISSED if pred < 0 else ErrorKind.SPURIOUS if gold < 0 else ErrorKind.WRONG
        forms = tuple(data.values[i] for i in data.accepted(gold)) if gold >= 0 else ()
        value = data.values[pred] if pred >= 0 else None
        ref = data.slots[int(slot[start])]
        yield Episode(
            dialogue_id=data.dialogue_ids[data.dialogue[at]],
            user_turn=int(data.position[at]),
            slot=ref,
            kind=kind,
            cause=dialogues.cause(at, ref, forms, value),
            gold=forms,
            pred=value,
            length=length,
            repaired=at + length - 1 < last_turn[data.dialogue[at]],
        )


class _Dialogues:
    """Gold states and texts, turn by turn, of the dialogue under study."""

    def __init__(self, units: Units, data: ScoreInput) -> None:
        self.data = data
        names = ["dialogue_id", "trial", "turn", "system_text", "user_text"]
        table = units.turns.select([n for n in names if n in units.turns.column_names])
        self.texts: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
        for r in table.to_pylist():
            said = f"{r.get('system_text') or ''}\n{r.get('user_text') or ''}"
            self.texts[r["dialogue_id"], r["trial"]].append((r["turn"], fold(said)))
        self.offsets = np.searchsorted(data.gold.turn, np.arange(data.n_turns + 1))

    def gold(self, turn: int) -> dict[SlotRef, tuple[str, ...]]:
        """The gold state of a labelled turn."""
        rows, data = self.data.gold, self.data
        span = range(int(self.offsets[turn]), int(self.offsets[turn + 1]))
        return {
            data.slots[rows.slot[i]]: tuple(data.values[v] for v in data.accepted(int(rows.value[i]))) for i in span
        }

    def said(self, turn: int) -> str:
        """Everything said up to a labelled turn, folded."""
        data = self.data
        key = data.dialogue_ids[data.dialogue[turn]], data.trials[data.dialogue[turn]]
        return "\n".join(text for number, text in self.texts[key] if number <= data.turn[turn])

    def cause(self, turn: int, ref: SlotRef, gold: tuple[str, ...], pred: str | None) -> Cause:
        """See :class:`Cause`."""
        state = self.gold(turn)
        if pred is None:
            return self._missed(turn, ref, gold, state)
        if any(o.slot == ref.slot or _bare(o) == _bare(ref) for o in _holders(state, pred) if o.service != ref.service):
            return Cause.WRONG_SERVICE
        first = turn - int(self.data.position[turn])
        if any(pred in self.gold(t).get(ref, ()) for t in range(first, turn)):
            return Cause.STALE
        if self._only_format(ref, gold, pred):
            return Cause.FORMAT
        if self._only_points(pred):
            return Cause.COREFERENCE
        if pred != DONTCARE and not self._closed(ref) and fold(pred) not in self.said(turn):
            return Cause.GROUNDING
        return Cause.OTHER

    def _missed(
        self, turn: int, ref: SlotRef, gold: tuple[str, ...], state: Mapping[SlotRef, tuple[str, ...]]
    ) -> Cause:
        if DONTCARE in gold or self._closed(ref):
            return Cause.OTHER
        copied = any(o != ref for form in gold for o in _holders(state, form))
        key = self.data.dialogue_ids[self.data.dialogue[turn]], self.data.trials[self.data.dialogue[turn]]
        now = "\n".join(text for number, text in self.texts[key] if number == self.data.turn[turn])
        return Cause.COREFERENCE if copied and not any(fold(form) in now for form in gold) else Cause.OTHER

    def _only_format(self, ref: SlotRef, gold: Sequence[str], pred: str) -> bool:
        from dialoom.metrics.compat.mwzeval import normal_value

        plain = _letters(pred)
        if any(_letters(form) == plain for form in gold):
            return True
        slot = self._slot(ref)
        if slot is None:
            return False
        if slot.type is SlotType.TIME:
            clock = normal_value("time", pred)
            return clock != pred or clock in gold
        return slot.is_categorical and bool(slot.values) and pred not in slot.values and pred != DONTCARE

    def _only_points(self, pred: str) -> bool:
        words = fold(pred).removeprefix("the ")
        kinds = {fold(kind) for service in self.data.schema.values() for kind in service.kinds}
        return words in _POINTERS or words in kinds or words.startswith("same ")

    def _closed(self, ref: SlotRef) -> bool:
        slot = self._slot(ref)
        return slot is not None and (slot.is_categorical or slot.type is SlotType.BOOLEAN)

    def _slot(self, ref: SlotRef) -> Any:
        service = self.data.schema.get(ref.service)
        return service.slot_by_name.get(ref.slot) if service else None


_POINTERS = frozenset(
    {"there", "here", "it", "that", "this", "same", "that one", "this one", "one", "place", "那里", "这里"}
)


def _holders(state: Mapping[SlotRef, tuple[str, ...]], value: str) -> list[SlotRef]:
    return [ref for ref, forms in state.items() if value in forms]


def _bare(ref: SlotRef) -> str:
    return ref.slot.removeprefix(f"{ref.service}-")


def _letters(text: str) -> str:
    return "".join(c for c in fold(text) if c.isalnum())


def _validator(data: ScoreInput) -> Table | None:
    """By rule: turns it fired in, how many of those ended corrected, and right values it rejected."""
    from dialoom.metrics import validator

    found = validator.compute(data)
    if data.log is None or not len(data.log.firings.row):
        return None
    rows = []
    for rule, fired in sorted(found["trigger_rate"].by["rule"].items()):
        corrected = found["self_correction_rate"].by["rule"].get(rule)
        harmed = found["harmed_rate"].by.get("rule", {}).get(rule)
        turns = round((fired.value or 0.0) * fired.n)
        row = (rule, turns, corrected.value if corrected else None, harmed.value if harmed else None)
        rows.append((*row, harmed.n if harmed else 0))
    columns = (
        Column("rule"),
        Column("turns", "count"),
        Column("corrected", "share"),
        Column("harmed", "share"),
        Column("rejected values", "count"),
    )
    without = found.get("joint_goal_without")
    notes: tuple[str, ...] = ()
    if without is not None and without.overall.value is not None:
        final = float(data.exact_turns.mean())
        notes = (f"Exact joint goal {100 * final:.2f}, from first proposals alone {100 * without.overall.value:.2f}.",)
    return Table("The validator, by rule", columns, tuple(rows), notes)
