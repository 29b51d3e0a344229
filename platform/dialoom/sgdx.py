"""SGD-X: the same dialogues under paraphrased schemas, names mapped both ways, and how much a method cares.

Source: Lee et al. 2022, "SGD-X: A Benchmark for Robust Generalization in Schema-Guided Dialogue Systems". A variant
lists the same services, slots and intents in the same order under other names and descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialoom.dialogue import Dialogue, Frame
from dialoom.errors import JobError, SchemaError
from dialoom.metric import Figure, Floats, ratio
from dialoom.schema import Schema, Service
from dialoom.state import BeliefState, SlotRef
from dialoom.stats import Interval, Resampling, percentile_interval, resampled_sums
from dialoom.tabular import Column, Table

if TYPE_CHECKING:
    from dialoom.metrics._input import ScoreInput


@dataclass(frozen=True)
class SchemaMapping:
    """Names of one schema to names of another. Intents and slots are keyed by (service, name) of the first."""

    services: Mapping[str, str]
    slots: Mapping[SlotRef, str]
    intents: Mapping[tuple[str, str], str]

    @classmethod
    def between(cls, original: Schema, variant: Schema) -> SchemaMapping:
        """The mapping by position. Raises SchemaError where the two do not line up, naming the service."""
        if len(original.services) != len(variant.services):
            raise SchemaError(
                f"{len(original.services)} services against {len(variant.services)}",
                where=variant.source or variant.name,
                hint="A variant lists the services of its original in the same order.",
            )
        services: dict[str, str] = {}
        slots: dict[SlotRef, str] = {}
        intents: dict[tuple[str, str], str] = {}
        for one, other in zip(original.services.values(), variant.services.values(), strict=True):
            _check(one, other, variant.source or variant.name)
            services[one.name] = other.name
            slots |= {SlotRef(one.name, s.name): t.name for s, t in zip(one.slots, other.slots, strict=True)}
            intents |= {(one.name, i.name): j.name for i, j in zip(one.intents, other.intents, strict=True)}
        return cls(services, slots, intents)

    @cached_property
    def inverse(self) -> SchemaMapping:
        """From the second schema's names to the first's."""
        return SchemaMapping(
            {new: old for old, new in self.services.items()},
            {SlotRef(self.services[ref.service], new): ref.slot for ref, new in self.slots.items()},
            {(self.services[service], new): old for (service, old), new in self.intents.items()},
        )

    def slot(self, ref: SlotRef) -> SlotRef:
        """A slot under its other name; unknown names stay."""
        return SlotRef(self.services.get(ref.service, ref.service), self.slots.get(ref, ref.slot))

    def intent(self, service: str, name: str) -> str:
        """An intent under its other name; "NONE" and unknown names stay."""
        return self.intents.get((service, name), name)

    def state(self, state: BeliefState) -> BeliefState:
        """A state under the other names, values as they are."""
        return BeliefState({self.slot(ref): value for ref, value in state.items()})

    def dialogue(self, dialogue: Dialogue) -> Dialogue:
        """A dialogue with services and gold frames under the other names; texts stay."""
        turns = tuple(
            turn if turn.frames is None else replace(turn, frames=tuple(self._frame(f) for f in turn.frames))
            for turn in dialogue.turns
        )
        return replace(dialogue, services=tuple(self.services.get(s, s) for s in dialogue.services), turns=turns)

    def _frame(self, frame: Frame) -> Frame:
        requested = frame.requested_slots
        return Frame(
            service=self.services.get(frame.service, frame.service),
            slot_values={self.slot(SlotRef(frame.service, s)).slot: v for s, v in frame.slot_values.items()},
            active_intent=None if frame.active_intent is None else self.intent(frame.service, frame.active_intent),
            requested_slots=None
            if requested is None
            else tuple(self.slot(SlotRef(frame.service, s)).slot for s in requested),
        )

    def score_input(self, data: ScoreInput) -> ScoreInput:
        """A score input with services and slots under the other names, so that breakdowns of variants line up."""
        slots = [self.slot(ref) for ref in data.slots]
        schema = {self.services.get(name, name): _renamed(service, self) for name, service in data.schema.items()}
        seen = None if data.seen is None else frozenset(self.services.get(s, s) for s in data.seen)
        services = [self.services.get(s, s) for s in data.services]
        return replace(data, services=services, slots=slots, schema=schema, seen=seen)


def _check(one: Service, other: Service, where: str) -> None:
    same_slots = [s.is_categorical for s in one.slots] == [s.is_categorical for s in other.slots]
    if not same_slots or len(one.intents) != len(other.intents):
        raise SchemaError(
            f"service {other.name} does not have the slots and intents of {one.name}",
            where=where,
            hint="A variant lists slots and intents of its original in the same order.",
        )


def _renamed(service: Service, mapping: SchemaMapping) -> Service:
    slots = tuple(replace(s, name=mapping.slot(SlotRef(service.name, s.name)).slot) for s in service.slots)
    intents = tuple(replace(i, name=mapping.intent(service.name, i.name)) for i in service.intents)
    return replace(service, name=mapping.services.get(service.name, service.name), slots=slots, intents=intents)


@dataclass(frozen=True)
class Sensitivity:
    """Joint goal accuracy under each variant, their mean, and schema sensitivity.

    ``by_service`` is under the names of the first run's schema.
    """

    variants: Mapping[str, Figure]
    mean: Figure
    sensitivity: Figure
    interval: Interval | None
    by_service: Mapping[str, Figure]
    n_frames_left_out: int
    """Frames that not every variant has (unscored dialogues)."""

    def table(self) -> Table:
        """One row a variant, then mean and sensitivity."""
        rows = [(name, f.value, f.n) for name, f in self.variants.items()]
        rows.append(("mean of variants", self.mean.value, self.mean.n))
        rows.append(("schema sensitivity (lower is better)", self.sensitivity.value, self.sensitivity.n))
        notes = [f"Over the {self.sensitivity.n} frames that every variant has; {self.n_frames_left_out} are left out."]
        if self.interval is not None:
            notes.append(f"Sensitivity {self.interval.low:.4f} to {self.interval.high:.4f}, bootstrap over dialogues.")
        columns = (Column("schema"), Column("joint goal", "number"), Column("frames", "count"))
        return Table("Schema variants", columns, tuple(rows), tuple(notes))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "variants": {name: f.value for name, f in self.variants.items()},
            "mean": self.mean.value,
            "sensitivity": self.sensitivity.value,
            "interval": None if self.interval is None else [self.interval.low, self.interval.high],
            "frames": self.sensitivity.n,
            "frames_left_out": self.n_frames_left_out,
            "by_service": {name: f.value for name, f in self.by_service.items()},
        }


def schema_sensitivity(
    runs: Mapping[str, Path],
    *,
    method: str | None = None,
    cell: str | None = None,
    resampling: Resampling = Resampling(),  # noqa: B008 - frozen
) -> Sensitivity:
    """Schema sensitivity of one method over runs of the same dialogues under several schemas (label to run folder).

    Each run is scored under its own schema (official fuzzy joint goal a frame), services are matched by position in
    the schemas that the runs recorded. Sensitivity is the mean over frames of the coefficient of variation across the
    variants: standard deviation (K - 1 in the denominator) over mean, 0 where the mean is 0. Raises JobError for fewer
    than two runs or an unclear method, SchemaError where the schemas do not line up.
    """
    if len(runs) < 2:
        raise JobError("schema sensitivity needs at least two runs", hint="One run for each schema variant.")
    scored = {label: _frames_of(path, method, cell) for label, path in runs.items()}
    first = next(iter(scored.values()))[1]
    keyed = {}
    for label, (frames, schema) in scored.items():
        back = SchemaMapping.between(first, schema).inverse
        keyed[label] = {(d, turn, back.services.get(s, s)): value for (d, turn, s), value in frames.items()}
    shared = sorted(set.intersection(*(set(frames) for frames in keyed.values())))
    every = set().union(*(set(frames) for frames in keyed.values()))
    values = np.array([[frames[key] for key in shared] for frames in keyed.values()]).reshape(len(keyed), len(shared))
    variation = coefficient_of_variation(values)
    variants = {label: _mean(row) for label, row in zip(keyed, values, strict=True)}
    services = sorted({s for _, _, s in shared})
    by_service = {s: _mean(variation[[k[2] == s for k in shared]]) for s in services}
    interval = _interval(variation, [d for d, _, _ in shared], resampling)
    left_out = len(every - set(shared))
    return Sensitivity(variants, _mean(values.ravel()), _mean(variation), interval, by_service, left_out)


def coefficient_of_variation(values: Floats) -> Floats:
    """Of each column of (variants, frames): sample standard deviation over mean, 0 where the mean is 0."""
    mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
    result: Floats = np.divide(deviation, mean, out=np.zeros(len(mean)), where=mean > 0)
    return result


def _mean(values: Floats) -> Figure:
    return Figure(float(values.mean()) if len(values) else None, len(values))


def _interval(variation: Floats, dialogues: list[str], resampling: Resampling) -> Interval | None:
    names, at = np.unique(np.array(dialogues, dtype=object), return_inverse=True)
    if len(names) < 2:
        return None
    sums = np.stack([np.bincount(at, weights=w) for w in (variation, np.ones(len(variation)))]).astype(np.float64)
    return percentile_interval(ratio(resampled_sums(sums, resampling)), resampling.level)


def _frames_of(run: Path, method: str | None, cell: str | None) -> tuple[dict[tuple[str, int, str], float], Schema]:
    """Joint goal of every frame by (dialogue, turn, service), mean over trials; and the run's schema."""
    from dialoom.metrics._traces import read_inputs
    from dialoom.metrics.compat.fuzz import difflib_ratio
    from dialoom.metrics.compat.sgd import frame_scores

    fitting = [
        (units, data)
        for units, data, _ in read_inputs(run)
        if method in (None, units.method) and cell in (None, units.cell)
    ]
    if len(fitting) != 1:
        raise JobError("name one method and cell of the run", where=str(run))
    data = fitting[0][1]
    scores = frame_scores(data, difflib_ratio)
    found: dict[tuple[str, int, str], list[float]] = {}
    joint = scores.values["joint_goal_accuracy"]
    for turn, service, value in zip(scores.turn.tolist(), scores.service.tolist(), joint.tolist(), strict=True):
        key = data.dialogue_ids[data.dialogue[turn]], int(data.turn[turn]), data.services[service]
        found.setdefault(key, []).append(value)
    return {k: sum(v) / len(v) for k, v in found.items()}, Schema("run", dict(data.schema), source=str(run))
