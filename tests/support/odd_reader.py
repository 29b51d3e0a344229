"""A reader that fails in a way of its own after a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.errors import BadInput
from dialoom.reader import ReaderConfig


class OddConfig(ReaderConfig):
    """Settings."""

    good: int = 30
    """Dialogues before the failure."""


class OddReader:
    """The plug-in."""

    name = "odd"
    config: type[ReaderConfig] = OddConfig

    def wants(self, file_name: str) -> bool:
        return True

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        for i in range(config.good):
            yield Dialogue(f"d{i}", (Turn(Speaker.USER, "hello"),))
        raise RuntimeError("broken \ud800 on purpose")


PLUGIN = OddReader()
