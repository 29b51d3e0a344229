"""What a killed job came to, counted from its folder."""

from __future__ import annotations

from pathlib import Path

from dialoom.bench.recover import done_again, paid_again
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder
from dialoom.unit import UnitKey


def test_finished_units_of_several_parts_count_once_each(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make()
    written = [
        [("d1", Outcome.ACCEPTED), ("d2", Outcome.INTERRUPTED)],
        [("d2", Outcome.FALLBACK), ("d3", Outcome.INFRASTRUCTURE)],
    ]
    for epoch, found in enumerate([*written, written[0]], 1):
        assert done_again(folder) == 0
        rows = [UnitKey(d, "m", "", 0)._asdict() | {"outcome": outcome.value} for d, outcome in found]
        folder.put(parts.part_name(epoch, "w0", 0), parts.encode(parts.batches({"dialogues": rows})))
    folder.put(parts.part_name(9, "w0", 0), b"torn")
    assert done_again(folder) == 1


def test_answers_given_more_than_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("a\nb\na\na\n")
    assert paid_again(count) == 2
