"""Finding recorded answers: sorted arrays, in memory and mapped, against a plain dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.engine import Address, Response
from dialoom.errors import StorageError
from dialoom.runtime import callindex, recorded
from dialoom.runtime.callindex import CallIndex, Covered, Place, Records, Sorted, index_bytes, read_index
from dialoom.runtime.calllog import SUFFIX, CallLog, scan
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.recorded import INDEX, index_calls, worth_indexing
from dialoom.usage import Usage

digests = st.one_of(
    st.sampled_from([b"\0" * 16, b"\0" * 15 + b"\1", b"\xff" * 16, b"a" * 8 + b"\0" * 8, b"a" * 8 + b"b" * 8]),
    st.binary(min_size=16, max_size=16),
)
added = st.lists(st.tuples(digests, st.integers(0, 2**40), st.integers(1, 2**31)), max_size=60)


@given(batches=st.lists(st.tuples(st.booleans(), added), max_size=6), absent=digests, settle=st.integers(1, 9))
def test_every_record_is_found_and_nothing_else(
    batches: list[tuple[bool, list[tuple[bytes, int, int]]]], absent: bytes, settle: int
) -> None:
    index, model = CallIndex(), dict[bytes, list[Place]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callindex, "SETTLE", settle)
        for at_once, records in batches:
            file = index.file("run", "name")
            unique = list({r[0]: r for r in records if r[0] not in model}.values()) if not at_once else records
            for digest, offset, size in unique:
                model.setdefault(digest, []).append(Place(file, offset, size))
            if at_once:
                index.learn([(file, iter(records))])
            else:
                for digest, offset, size in unique:
                    index.add(digest, Place(file, offset, size))
    for digest, places in model.items():
        assert index.find(digest) == places, "the oldest comes first"
        assert digest in index
    assert sorted(index.digests()) == sorted(model)
    assert len(index) == sum(map(len, model.values()))
    if absent not in model:
        assert index.find(absent) == []
        assert absent not in index


@given(added)
def test_a_mapped_index_is_the_one_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[bytes, int, int]]
) -> None:
    read = Records()
    for digest, offset, size in records:
        read.add(digest, Place(7, offset, size))
    whole = Sorted.of(read)
    path = tmp_path_factory.mktemp("index") / "x.index"
    covered = [Covered("run/ü", "calls/a.calls", 12)]
    path.write_bytes(index_bytes(covered, whole))
    files, mapped = read_index(path)
    assert files == covered
    for digest, _, _ in records:
        assert list(mapped.find(digest)) == list(whole.find(digest))
    assert mapped.repeated() == {d for d, _, _ in records if sum(d == r[0] for r in records) > 1}


@pytest.mark.parametrize("keep", [0, 3, 8, 40, -1])
def test_a_damaged_index_is_said(tmp_path: Path, keep: int) -> None:
    read = Records()
    read.add(b"x" * 16, Place(0, 0, 1))
    whole = index_bytes([Covered("run", "calls/a.calls", 12)], Sorted.of(read))
    (tmp_path / "x.index").write_bytes(whole[:keep])
    with pytest.raises(StorageError, match=r"x\.index: is damaged"):
        read_index(tmp_path / "x.index")


def written(folder: RunFolder, segment: str, *texts: str) -> CallLog:
    folder.make()
    log = CallLog(folder, segment)
    for text in texts:
        log.append(digest_of(text), Response(text, Usage(1, 0, 2)))
    log.write()
    return log


def digest_of(text: str) -> bytes:
    return text.encode().ljust(16, b"\0")


def texts(log: CallLog, *asked: str) -> list[str | None]:
    return [r.text if (r := log.get(digest_of(t))) else None for t in asked]


def test_an_index_over_runs_answers_as_their_segments_do(tmp_path: Path) -> None:
    run, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "other")
    written(run, "00001-w0", "a", "b")
    written(other, "00001-w0", "c")
    sources = [str(run), str(other)]
    name = index_calls(str(run), sources, 2)
    log = CallLog(run, "00002-w0", index=run.fetch(name))
    assert texts(log, "a", "b", "c", "d") == ["a", "b", "c", None]
    log.append(digest_of("d"), Response("d", Usage()))
    log.append(digest_of("a"), Response("another", Usage()))
    log.write()
    assert texts(log, "a", "d") == ["a", "d"]
    assert len(log) == 4


def test_a_restart_reads_what_is_new_and_the_old_index_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    first = written(run, "00001-w0", "a")
    index_calls(str(run), [str(run)], 1)
    first.append(digest_of("b"), Response("b", Usage()))
    first.write()
    written(run, "00002-w0", "c")
    read: list[tuple[str, int]] = []

    def watched(path: Path, start: int) -> Iterator[tuple[bytes, int, int]]:
        read.append((path.name, start))
        return scan(path, start)

    monkeypatch.setattr(recorded, "scan", watched)
    name = index_calls(str(run), [str(run)], 2)
    assert [n for n, start in read if start == 0] == [f"00002-w0{SUFFIX}"]
    assert len(read) == 2
    assert run.names("calls", INDEX) == [name]
    assert texts(CallLog(run, "x", index=run.fetch(name)), "a", "b", "c") == ["a", "b", "c"]


def test_an_index_whose_segments_are_gone_is_made_anew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    written(run, "00001-w0", "a")
    written(run, "00001-w1", "b")
    old = index_calls(str(run), [str(run)], 1)
    run.remove(f"calls/00001-w1{SUFFIX}")
    log = CallLog(run, "x", index=run.fetch(old))
    assert texts(log, "a", "b") == ["a", None], "a segment that is gone is paid again, and no error"
    name = index_calls(str(run), [str(run)], 2)
    assert len(CallLog(run, "x", index=run.fetch(name))) == 1
    (run.path / name).write_bytes(b"torn")
    assert texts(CallLog(run, "x", index=run.fetch(index_calls(str(run), [str(run)], 3))), "a") == ["a"]


def test_half_a_record_at_the_end_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    written(run, "00001-w0", "a", "b")
    path = run.path / f"calls/00001-w0{SUFFIX}"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    index_calls(str(run), [str(run)], 1)
    path.write_bytes(whole)
    name = index_calls(str(run), [str(run)], 2)
    assert texts(CallLog(run, "x", index=run.fetch(name)), "a", "b") == ["a", "b"]


def test_few_calls_are_not_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    written(run, "00001-w0", "a")
    assert not worth_indexing([run])
    monkeypatch.setattr(recorded, "WORTH_BYTES", 10)
    assert worth_indexing([RunFolder(tmp_path / "nothing"), run])


def test_of_several_answers_each_call_gets_the_one_it_had(tmp_path: Path) -> None:
    """Two workers asked the same at once, and an engine need not answer alike."""
    run = RunFolder(tmp_path / "run")
    run.make()
    places = {"w0": Address("d0", 0, 0, "m"), "w1": Address("d1", 0, 0, "m")}
    for worker in places:
        log = CallLog(run, worker)
        log.append(b"same" * 4, Response(f"said by {worker}", Usage(run_s=len(worker) / 7)))
        log.write()
    log = CallLog(run, "replay", [run])
    assert log.repeated() == {b"same" * 4}
    log.prefer({(b"same" * 4, address): (f"said by {worker}", 2 / 7) for worker, address in places.items()})
    for worker, address in places.items():
        found = log.get(b"same" * 4, address)
        assert found is not None
        assert found.text == f"said by {worker}"
    for elsewhere in (Address("d2", 0, 0, "m"), None):
        found = log.get(b"same" * 4, elsewhere)
        assert found is not None
        assert found.text == "said by w0"
