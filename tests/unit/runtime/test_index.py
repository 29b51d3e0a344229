"""What the driver knows of units: done, owed, seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import StorageError
from dialoom.outcome import Outcome
from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.index import Index, unit_keys
from dialoom.unit import UnitKey
from support.tmpfs import small_disk


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.close()


KEY = UnitKey("d", "m")


def part(folder: RunFolder, name: str, *units: tuple[UnitKey, str, Outcome]) -> None:
    rows = [{**key._asdict(), "content_hash": h, "outcome": o.value} for key, h, o in units]
    folder.put(f"parts/{name}.part", parts.encode(parts.batches({"dialogues": rows})))


@pytest.mark.parametrize("outcome", Outcome)
def test_a_unit_is_owed_until_it_is_done_for_this_content(index: Index, outcome: Outcome) -> None:
    assert index.owed([KEY], "h1") == [KEY]
    index.record([(KEY, "h1", outcome)])
    assert index.owed([KEY], "h1") == ([KEY] if outcome.owed else [])
    assert index.owed([KEY], "h2") == [KEY]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(Outcome, Outcome)))
def test_an_owed_outcome_never_replaces_a_result(index: Index, first: Outcome, second: Outcome) -> None:
    index.record([(KEY, "old", first)])
    index.record([(KEY, "new", second)])
    kept = first if second.owed and not first.owed else second
    assert index.counts() == {kept.value: 1}
    assert index.owed([KEY], "new") == ([] if kept is second and not second.owed else [KEY])


ids = st.text(st.characters(codec="utf-8"), max_size=3) | st.sampled_from(["a", "a\0", "a\0b", "A", "a ", "'"])


@given(st.lists(ids, max_size=12))
def test_ids_are_told_apart_exactly(names: list[str]) -> None:
    index = Index()
    seen: set[str] = set()
    for name in names:
        assert index.first_seen(name, good=True) == (name not in seen)
        seen.add(name)
    index.record((UnitKey(name, "m"), "h", Outcome.ACCEPTED) for name in seen)
    assert index.counts() == ({"accepted": len(seen)} if seen else {})
    index.close()


def test_units_of_one_dialogue_are_told_apart(index: Index) -> None:
    keys = [UnitKey("d", m, c, t) for m in ("m", "n") for c in ("", "c") for t in (0, 1)]
    index.record([(keys[3], "h", Outcome.ACCEPTED)])
    assert index.owed(keys, "h") == [k for k in keys if k != keys[3]]


def test_parts_are_taken_in_and_damaged_ones_named(index: Index, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    other = UnitKey("e", "m", "c", 1)
    part(folder, "1", (KEY, "h", Outcome.INFRASTRUCTURE), (other, "h", Outcome.FALLBACK))
    part(folder, "2", (KEY, "h", Outcome.ACCEPTED))
    part(folder, "3", (other, "h", Outcome.INTERRUPTED))
    folder.put("parts/4.part", (folder.read("parts/2.part") or b"")[:-1])
    folder.put("parts/5.part", b"")
    assert index.load(folder) == ["parts/4.part", "parts/5.part"]
    assert index.owed([KEY, other], "h") == []
    assert index.counts() == {"accepted": 1, "fallback": 1}
    assert list(unit_keys(folder, "parts/2.part")) == [(KEY, "h", Outcome.ACCEPTED)]


def test_some_parts_only(index: Index, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    part(folder, "1", (KEY, "h", Outcome.ACCEPTED))
    part(folder, "2", (UnitKey("e", "m"), "h", Outcome.ACCEPTED))
    assert index.load(folder, ["parts/2.part"]) == []
    assert index.owed([KEY, UnitKey("e", "m")], "h") == [KEY]


def test_the_scratch_file_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    index = Index()
    assert len(list(tmp_path.iterdir())) == 1
    index.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_scratch_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        monkeypatch.setattr("tempfile.tempdir", str(disk))
        index = Index()
        units = [(UnitKey("d" * 500 + str(i), "m"), "h", Outcome.ACCEPTED) for i in range(1000)]
        with pytest.raises(StorageError, match=r"full\. The scratch file lies in TMPDIR: free some space there"):
            for _ in range(50):
                index.record(units)
                units = [(UnitKey(k.dialogue_id + "x", "m"), h, o) for k, h, o in units]
        index.close()


def test_no_place_for_the_scratch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match="gone"):
        Index()
