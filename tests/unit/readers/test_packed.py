"""Packed files: told by their bytes, read in any reader, and all that is whole in a torn one is delivered."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput
from dialoom.reader import expand_paths, open_dialogues
from dialoom.readers._raw import open_binary
from support.records import sgd_dialogue, sgd_turn, sorted_out, write_json


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


def gunzip_what_is_there(data: bytes) -> bytes:
    return zlib.decompressobj(31).decompress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd}
RANDOM = random.Random(7)
WORDS = ["".join(RANDOM.choices("abcdefgh ", k=600)) for _ in range(3000)]


def log_of(n: int) -> bytes:
    records = ({"id": f"d{i}", "turns": [{"role": "user", "text": WORDS[i]}]} for i in range(n))
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(reader: str, path: Path) -> tuple[list[Dialogue], list[BadInput]]:
    return sorted_out(open_dialogues(reader, [path]))


@given(st.sampled_from(list(PACKERS)), st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_what_was_packed_is_read_and_frames_follow_each_other(
    tmp_path_factory: pytest.TempPathFactory, kind: str, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "packed"
    path.write_bytes(b"".join(map(PACKERS[kind], pieces)))
    with open_binary(path) as stream:
        assert stream.read() == b"".join(pieces)


def test_a_zstandard_file_may_begin_with_a_frame_that_is_skipped(tmp_path: Path) -> None:
    skipped = b"\x52\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    (tmp_path / "a").write_bytes(skipped + zstd(b"hello"))
    with open_binary(tmp_path / "a") as stream:
        assert stream.read() == b"hello"


@pytest.mark.parametrize("kind", PACKERS)
def test_every_reader_takes_packed_files_from_a_folder(tmp_path: Path, kind: str) -> None:
    for name in ("dialogues_001.json", "log.jsonl", "data.json", "ontology.json"):
        (tmp_path / f"{name}.{kind}").write_bytes(PACKERS[kind](b"[]"))
    (tmp_path / f"notes.txt.{kind}").write_bytes(b"")
    for reader, names in (
        ("sgd", ["dialogues_001.json"]),
        ("multiwoz22", ["dialogues_001.json"]),
        ("chat", ["log.jsonl"]),
        ("multiwoz", ["data.json", "dialogues_001.json"]),
    ):
        assert [p.name for p in expand_paths(reader, [tmp_path])] == [f"{name}.{kind}" for name in names]


def test_logs_without_ids_are_named_without_the_ending(tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl.zst").write_bytes(zstd(b'{"turns": [{"role": "user", "text": "hi"}]}\n'))
    ((dialogue,), bad) = read("chat", tmp_path)
    assert not bad
    assert dialogue.dialogue_id == "calls:1"
    assert dialogue.source == f"{tmp_path / 'calls.jsonl.zst'}:1 (byte 0)"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_torn_gzip_gives_every_whole_record(tmp_path: Path, share: float) -> None:
    packed = gzip.compress(log_of(2500), 1)
    torn = packed[: int(len(packed) * share)]
    (tmp_path / "a.jsonl.gz").write_bytes(torn)
    dialogues, (bad,) = read("chat", tmp_path)
    assert len(dialogues) == gunzip_what_is_there(torn).count(b"\n")
    assert "cannot read on" in bad.what


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("reader", ["chat", "sgd"])
def test_a_torn_file_keeps_its_first_frames(tmp_path: Path, reader: str, kind: str) -> None:
    """A frame for each record: however the file is torn, those before are delivered, in either kind of file."""
    records = [json.dumps(sgd_dialogue(f"d{i}", sgd_turn(text=WORDS[i]))).encode() for i in range(200)]
    if reader == "sgd":
        lines = [b"[" + records[0], *(b",\n" + record for record in records[1:])]
        path = tmp_path / "dialogues_001.json"
    else:
        lines = [r.replace(b'"speaker"', b'"role"').replace(b'"utterance"', b'"text"') + b"\n" for r in records]
        path = tmp_path / "log.jsonl"
    frames = [PACKERS[kind](line) for line in lines]
    for whole in (1, 3, 150, 199):
        path.write_bytes(b"".join(frames[:whole]) + frames[whole][: len(frames[whole]) // 2])
        dialogues, bad = read(reader, path)
        assert len(dialogues) == whole
        assert bad
        assert all("cannot read on" in b.what or "cut off" in b.what + b.hint for b in bad)


@pytest.mark.parametrize("kind", PACKERS)
def test_damage_in_the_middle_is_said(tmp_path: Path, kind: str) -> None:
    packed = bytearray(PACKERS[kind](log_of(2000)))
    packed[len(packed) // 2 :] = bytes(b ^ 0xFF for b in packed[len(packed) // 2 :])
    (tmp_path / "a.jsonl").write_bytes(packed)
    dialogues, bad = read("chat", tmp_path)
    assert 500 < len(dialogues) < 2000
    assert "cannot read on" in bad[-1].what


def test_memory_stays_flat_however_large_the_unpacked_file(tmp_path: Path) -> None:
    import tracemalloc

    turn = sgd_turn(text="a few words of talk, " * 200, time=["7 pm"])
    record = json.dumps(sgd_dialogue("d", turn)).encode()
    path = tmp_path / "dialogues_001.json"
    path.write_bytes(zstd(b"[" + b",\n".join([record] * 6000) + b"]"))
    next(iter(open_dialogues("sgd", [write_json(tmp_path / "dialogues_000.json", [sgd_dialogue("d")])])))
    held = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        count, held_most = 0, 0
        for _ in open_dialogues("sgd", [path]):
            count += 1
            held_most = max(held_most, pa.total_allocated_bytes() - held)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 6000
    assert peak < 8_000_000
    assert held_most < 8_000_000


@given(st.binary(max_size=100))
def test_any_bytes_after_the_mark_give_rows_and_no_exception(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.jsonl"
    for mark in (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\x1f\x8b"):
        path.write_bytes(mark + data)
        dialogues, bad = read("chat", path)
        assert dialogues or bad
