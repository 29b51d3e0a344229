"""What a method gets to work with one unit, and the rows that come of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from dialoom.dialogue import Dialogue, Speaker
from dialoom.engine import Address, Message, Request, Response, Sampling
from dialoom.errors import DialoomError, EngineError, LimitReached, RequestRefused
from dialoom.method import Call, TurnTrace
from dialoom.outcome import Outcome, worst
from dialoom.runtime.client import Answer, EngineClient
from dialoom.runtime.plan import Plan, Variant
from dialoom.schema import Schema
from dialoom.state import BeliefState, Delta
from dialoom.text import storable, storable_tree
from dialoom.unit import UnitKey
from dialoom.usage import Usage

Row = dict[str, Any]
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "queue_s", "run_s", "latency_s")
_LATER_TRIALS = 2**30
"""Sampling seeds from here to 2**31 are those of a unit's later trials."""
NO_TEXT = Sampling(max_tokens=0)
"""Sampling of calls for vectors."""


class UnitContext:
    """Implements :class:`dialoom.method.Context`; collects calls and turns, and writes their rows at the end."""

    def __init__(
        self, plan: Plan, variant: Variant, unit: UnitKey, dialogue: Dialogue, schema: Schema, client: EngineClient
    ) -> None:
        self.unit = unit
        self.schema = schema
        self.messages: dict[str, Message] = {}
        self.refused_by: set[str] = set()
        """Engines that refused one of its calls."""
        self._variant = variant
        self._dialogue = dialogue
        self._client = client
        self._prices = {name: spec.price for name, spec in plan.engines.items()}
        self._limits = plan.options.limits
        self._seed = variant.seed
        self._temperature = float(variant.settings.get("temperature", 0.0))
        self._max_tokens = int(variant.settings.get("max_tokens", 256))
        self._calls: list[Call] = []
        self._turns: list[TurnTrace] = []
        self._next_call: dict[int, int] = {}
        self._tokens = 0
        self._started = time.monotonic()

    async def generate(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        turn: int,
        answer_schema: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Call:
        """See :meth:`dialoom.method.Context.generate`."""
        address = self._next_address(turn)
        hot = self._temperature > 0
        request = Request(
            messages=tuple(messages),
            sampling=Sampling(
                temperature=self._temperature,
                max_tokens=max_tokens or self._max_tokens,
                seed=sampling_seed(self._seed, address.trial) if hot else None,
                stop=tuple(stop),
            ),
            address=address,
            answer_schema=answer_schema,
            tools=tuple(tools),
        )
        return await self._call(role, request)

    async def embed(self, role: str, texts: Sequence[str], *, turn: int = 0) -> list[list[float]]:
        """See :meth:`dialoom.method.Context.embed`."""
        messages = tuple(Message("text", text) for text in texts)
        call = await self._call(role, Request(messages, NO_TEXT, self._next_address(turn), vectors=True))
        vectors = call.response.vectors
        call.response = replace(call.response, vectors=())  # they may be large, and the unit's rows do not hold them
        return [list(vector) for vector in vectors]

    def _next_address(self, turn: int) -> Address:
        self._check_limits(turn)
        index = self._next_call.get(turn, 0)
        self._next_call[turn] = index + 1
        u = self.unit
        return Address(u.dialogue_id, turn, index, u.method, u.cell, u.trial)

    async def _call(self, role: str, request: Request) -> Call:
        digest_of = self._client.digests.message
        ids = [digest_of(m) for m in request.messages]
        for message_id, message in zip(ids, request.messages, strict=True):
            self.messages[message_id] = message
        engine, index = self._variant.roles[role], request.address.call
        sent = self._sent_row(request, role, engine, ids)
        try:
            answer = await self._in_time(engine, request, ids)
        except (EngineError, LimitReached) as error:
            if isinstance(error, RequestRefused):
                self.refused_by.add(engine)
            self._failed_call(error, index, sent)
            raise
        usage = answer.response.usage
        self._tokens += usage.prompt_tokens + usage.output_tokens
        call = Call(answer.response, index, row=sent | self._answer_row(answer))
        self._calls.append(call)
        return call

    async def _in_time(self, engine: str, request: Request, ids: Sequence[str]) -> Answer:
        """The client's answer, within what is left of the unit's time.

        A call that comes too late is recorded as such: a replay, which takes no time, ends at the same call.
        """
        limit_s = self._limits.unit_s
        if limit_s is None:
            return await self._client.call(engine, request, ids)
        if late := self._client.late(engine, request, ids):
            raise late
        left_s = self._started + limit_s - time.monotonic()
        if left_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    return await self._client.call(engine, request, ids)
        where = f"{self.unit} turn {request.address.turn}"
        late = LimitReached(f"the unit's {limit_s:g} s are used up", where=where)
        self._client.refused(engine, request, ids, late)
        raise late

    def _check_limits(self, turn: int) -> None:
        limits = self._limits
        if limits.unit_calls is not None and sum(self._next_call.values()) >= limits.unit_calls:
            raise LimitReached(f"the unit's {limits.unit_calls} calls are used up", where=f"{self.unit} turn {turn}")
        if limits.unit_tokens is not None and self._tokens >= limits.unit_tokens:
            raise LimitReached(f"the unit's {limits.unit_tokens} tokens are used up", where=f"{self.unit} turn {turn}")

    def turn(self, trace: TurnTrace) -> None:
        """See :meth:`dialoom.method.Context.turn`. Raises ValueError for what is no turn of the user."""
        turns = self._dialogue.turns
        if not 0 <= trace.turn < len(turns) or turns[trace.turn].speaker is not Speaker.USER:
            raise ValueError(f"turn {trace.turn} of {self.unit} is no turn of the user: it has no row")
        self._turns.append(trace)

    def _sent_row(self, request: Request, role: str, engine: str, ids: list[str]) -> Row:
        """What is known of a call before its answer."""
        schema_id = None
        if request.answer_schema is not None:
            schema_id, text = self._client.digests.tree(request.answer_schema)
            self.messages[schema_id] = Message("answer_schema", text)
        return {
            "turn": request.address.turn,
            "call": request.address.call,
            "digest": "",
            "replayed": False,
            "role": role,
            "engine": engine,
            "model": self._client.model(engine),
            "message_ids": ids,
            "answer_schema_id": schema_id,
            "sampling": self._client.digests.sampling(request.sampling),
        }

    @staticmethod
    def _answer_row(answer: Answer) -> Row:
        r, u = answer.response, answer.response.usage
        return {
            "digest": answer.digest,
            "replayed": answer.replayed,
            "replica": r.replica,
            "text": r.text,
            "reasoning": r.reasoning or None,
            "tool_calls": dump(list(r.tool_calls)) if r.tool_calls else None,
            "finish_reason": r.finish_reason,
            "prompt_tokens": u.prompt_tokens,
            "cached_tokens": u.cached_tokens,
            "output_tokens": u.output_tokens,
            "reasoning_tokens": u.reasoning_tokens,
            "queue_s": u.queue_s,
            "run_s": u.run_s,
            "latency_s": answer.latency_s,
            "attempts": r.attempts,
            "sent_at": int(answer.sent_at * 1e6),
        }

    def _failed_call(self, error: DialoomError, index: int, sent: Row) -> None:
        row = sent | {
            "digest": error.__dict__.get("digest", ""),
            "finish_reason": "error",
            "attempts": error.__dict__.get("attempts", 1),
            "error": f"{error.kind}: {error}",
            "sent_at": int(time.time() * 1e6),
        }
        self._calls.append(Call(Response("", Usage(), "error"), index, row=row))

    def rows(self, outcome: Outcome | None, error: DialoomError | None, extra: Row) -> dict[str, list[Row]]:
        """Rows of the dialogues, turns and calls tables. ``outcome`` None takes the worst of the turns."""
        key: Row = self.unit._asdict()
        key["dialogue_id"] = storable(self.unit.dialogue_id)
        calls = [self._finished_call(c, key) for c in self._calls]
        by_turn: dict[int, list[Row]] = {}
        for row in calls:
            by_turn.setdefault(row["turn"], []).append(row)
        turns = turn_rows(self._dialogue, self._turns, by_turn, key)
        outcome = outcome or worst(t.outcome for t in self._turns)
        totals = sums(calls)
        paid = sums([c for c in calls if not c["replayed"]])
        dialogue = {
            **key,
            **dialogue_facts(self._dialogue),
            "outcome": outcome.value,
            "n_calls": len(calls),
            "n_replayed": sum(1 for c in calls if c["replayed"]),
            **totals,
            "paid_prompt_tokens": paid["prompt_tokens"],
            "paid_cached_tokens": paid["cached_tokens"],
            "paid_output_tokens": paid["output_tokens"],
            **error_fields(error),
            **extra,
        }
        dialogue |= self._costs(calls)
        return {"dialogues": [dialogue], "turns": turns, "calls": calls}

    def _costs(self, calls: Sequence[Row]) -> Row:
        """Dollars for the unit's tokens: as if alone, and paid. Null where an engine it used has no price."""
        attributed, paid = 0.0, 0.0
        for row in calls:
            price = self._prices[row["engine"]]
            if price is None:
                return {"cost_attributed_usd": None, "cost_paid_usd": None}
            tokens = (
                row.get(name) or 0 for name in ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
            )
            cost = price.of(Usage(*tokens))
            attributed += cost
            paid += 0.0 if row["replayed"] else cost
        return {"cost_attributed_usd": attributed, "cost_paid_usd": paid}

    def _finished_call(self, call: Call, key: Row) -> Row:
        return {
            **key,
            **call.row,
            "step": storable(call.step),
            "action": None if call.action is None else dump(call.action),
            "observation": storable(call.observation) or None,
            "rules": [storable(r) for r in call.rules],
        }


def sampling_seed(seed: int, trial: int) -> int:
    """The seed that engines get for one trial of a job or cell with ``seed``: not negative, of 32 bits with sign.

    The first trial keeps a seed below 2**30. All pairs differ for seeds up to 100,000 and as many trials as a job may
    have: a sweep over seeds never draws what another seed's later trial drew.
    """
    if trial == 0 and seed < _LATER_TRIALS:
        return seed
    return _LATER_TRIALS + (seed * 10_000 + trial) % _LATER_TRIALS


def dump(tree: Any) -> str:
    """A JSON tree as text, whatever strings it holds."""
    try:
        return orjson.dumps(tree).decode()
    except TypeError:
        return orjson.dumps(storable_tree(tree)).decode()


def sums(calls: Sequence[Row]) -> Row:
    """Token and second columns added up over call rows."""
    return {name: sum(c.get(name) or 0 for c in calls) for name in TOKENS}


def error_fields(error: DialoomError | None) -> Row:
    """The error columns of the dialogues table."""
    if error is None:
        return {"error_kind": None, "error": None, "error_where": None}
    return {"error_kind": error.kind, "error": str(error), "error_where": error.where or None}


def dialogue_facts(dialogue: Dialogue) -> Row:
    """What the dialogues table says of the dialogue itself."""
    return {
        "source": storable(dialogue.source),
        "language": dialogue.lang,
        "services": [storable(s) for s in dialogue.services],
        "n_turns": len(dialogue.turns),
        "n_user_turns": sum(t.speaker is Speaker.USER for t in dialogue.turns),
        "has_gold": any(t.frames is not None for t in dialogue.turns),
        "extra": dump(dialogue.extra) if dialogue.extra else None,
    }


def turn_rows(dialogue: Dialogue, traces: Sequence[TurnTrace], calls: Mapping[int, list[Row]], key: Row) -> list[Row]:
    """A row for every user turn: what the method decided there, the gold, the texts, the sums of its calls."""
    by_turn = {t.turn: t for t in traces}
    rows: list[Row] = []
    answers: list[str] = []
    for index, turn in enumerate(dialogue.turns):
        if turn.speaker is not Speaker.USER:
            answers.append(storable(turn.text))
            continue
        turn_calls = calls.get(index, [])
        row: Row = {
            **key,
            "turn": index,
            "user_turn": len(rows),
            "system_text": "\n".join(answers),
            "user_text": storable(turn.text),
            "gold": gold_frames(turn.frames),
            "n_calls": len(turn_calls),
            **sums(turn_calls),
        }
        trace = by_turn.get(index)
        if trace is not None:
            row |= trace_fields(trace)
        rows.append(row)
        answers.clear()
    return rows


def trace_fields(trace: TurnTrace) -> Row:
    """The columns that a method filled."""
    return {
        "outcome": trace.outcome.value,
        "intents": [{"service": storable(s), "intent": storable(i)} for s, i in trace.intents],
        "active_intents": [{"service": storable(s), "intent": storable(i)} for s, i in trace.active_intents.items()],
        "requested": None
        if trace.requested is None
        else [{"service": storable(r.service), "slot": storable(r.slot)} for r in trace.requested],
        "delta": slot_values(trace.delta),
        "state": None if trace.state is None else slot_values(trace.state),
        "first_proposal": slot_values(trace.first_proposal),
        "fired": [
            {
                "rule": storable(f.rule),
                "call": f.call,
                "service": storable(f.service),
                "slot": storable(f.slot),
                "value": storable(f.value),
                "expected": storable(f.expected),
            }
            for f in trace.fired
        ],
        "support": [
            {
                "service": storable(s.ref.service),
                "slot": storable(s.ref.slot),
                "turn": s.turn,
                "start": s.start,
                "end": s.end,
            }
            for s in trace.support
        ],
        "output": None if trace.output is None else dump(trace.output),
        "error": storable(trace.error) or None,
    }


def slot_values(values: Delta | BeliefState) -> list[Row]:
    """A delta or state as the list of structs the turns table holds."""
    return [{"service": storable(r.service), "slot": storable(r.slot), "value": storable(v)} for r, v in values.items()]


def gold_frames(frames: Sequence[Any] | None) -> list[Row] | None:
    """Gold frames as the turns table holds them."""
    if frames is None:
        return None
    return [
        {
            "service": storable(f.service),
            "active_intent": None if f.active_intent is None else storable(f.active_intent),
            "requested_slots": None if f.requested_slots is None else [storable(s) for s in f.requested_slots],
            "slot_values": [
                {"slot": storable(s), "values": [storable(v) for v in values]} for s, values in f.slot_values.items()
            ],
        }
        for f in frames
    ]
