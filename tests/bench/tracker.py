"""Processor time of the tracker itself, for each model call: render, parse, validate, trace.

``python tests/bench/tracker.py`` prints microseconds a call on the public test data, for each protocol. The rule's and
the context's own time is measured apart and taken off.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dialoom import registry
from dialoom.dialogue import Dialogue
from dialoom.engine import Request, Response
from dialoom.methods.tracker._rule import answer
from dialoom.reader import open_dialogues
from dialoom.schema import Schema
from dialoom.schema_files import load_schema
from dialoom.usage import Usage
from support.context import InProcess
from support.shared import ROOT, shared_path


class Ruled:
    """An engine without any cost of its own but the rule's, which it adds up."""

    def __init__(self, rule: Callable[[Request], str]) -> None:
        self.spent_s = 0.0
        self._rule = rule
        self._usage = Usage()

    async def generate(self, request: Request) -> Response:
        start = time.process_time()
        response = Response(self._rule(request), self._usage)
        self.spent_s += time.process_time() - start
        return response


def measure(dialogues: list[Dialogue], schema: Schema, protocol: str) -> tuple[float, float, int]:
    """Seconds of the tracker and of the rule, and the number of calls."""
    plugin = registry.find("methods", "tracker")
    tracker = plugin.create(plugin.config(protocol=protocol), schema)
    engine = Ruled(answer)
    schemas = {d.services: schema.subset(d.services) if d.services else schema for d in dialogues}

    async def run() -> tuple[float, int]:
        spent, calls = 0.0, 0
        for dialogue in dialogues:
            context = InProcess(dialogue, schema, engine)  # type: ignore[arg-type]
            context.schema = schemas[dialogue.services]
            start = time.process_time()
            await tracker.run(dialogue, context)
            spent += time.process_time() - start
            calls += len(context.calls)
        return spent, calls

    spent, calls = asyncio.run(run())
    return spent - engine.spent_s, engine.spent_s, calls


def main() -> None:
    """Print a line for each data set and protocol."""
    multiwoz, sgd = shared_path("multiwoz", "mwz21", "test"), shared_path("sgd", "test")
    for name, folder, schema in (
        ("multiwoz", multiwoz, ROOT / "schemas" / "multiwoz.yaml"),
        ("sgd", sgd, sgd / "schema.json"),
    ):
        read = [d for d in open_dialogues(name, [str(folder)], {}) if isinstance(d, Dialogue)]
        for protocol in ("json", "text"):
            tracker_s, rule_s, calls = measure(read, load_schema(schema), protocol)
            tracker_us, rule_us = tracker_s / calls * 1e6, rule_s / calls * 1e6
            print(f"{name} {protocol}: {calls} calls, {tracker_us:.1f} us a call, rule {rule_us:.1f}")


if __name__ == "__main__":
    main()
