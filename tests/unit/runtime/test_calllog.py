"""The call log: what is stored comes back, torn and damaged records are ignored, many writers share one folder."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.engine import Address, EngineIdentity, Message, Request, Response, Sampling
from dialoom.errors import StorageError
from dialoom.runtime.calllog import SUFFIX, CallLog, Digests, decode_response, encode_response, kept, scan
from dialoom.runtime.folder import RunFolder
from dialoom.usage import Usage
from support.tmpfs import small_disk

any_text = st.text(max_size=12) | st.lists(st.sampled_from(["a", "\0", "😀", "\ud800", "\n"]), max_size=5).map("".join)
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
tool_calls = st.lists(st.dictionaries(any_text, any_text | st.integers() | st.lists(any_text, max_size=2), max_size=2))
responses = st.builds(
    Response,
    text=any_text,
    usage=st.builds(Usage, counts, counts, counts, counts, seconds, seconds),
    finish_reason=any_text,
    reasoning=any_text,
    tool_calls=tool_calls.map(tuple),
    logprobs=st.lists(st.tuples(any_text, st.floats(max_value=0)), max_size=2).map(tuple),
    vectors=st.lists(st.lists(st.floats(allow_nan=False), max_size=3).map(tuple), max_size=2).map(tuple),
)


def response(text: str) -> Response:
    return Response(text, Usage(1, 0, 2))


def digest(number: int) -> bytes:
    return number.to_bytes(16, "little")


def new_folder(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.make()
    return folder


def written(folder: RunFolder, texts: list[str], segment: str = "s") -> Path:
    """A segment that holds these answers under the digests 0, 1, 2, ..."""
    log = CallLog(folder, segment)
    for number, text in enumerate(texts):
        log.append(digest(number), response(text))
    log.write()
    return folder.path / "calls" / f"{segment}{SUFFIX}"


def found(folder: RunFolder) -> list[str]:
    """All answers a new log finds, by digest."""
    log = CallLog(folder, "reader", [folder])
    answers = [log.get(d) for d in sorted(log.digests())]
    return [a.text for a in answers if a is not None]


@given(responses)
def test_a_response_comes_back_as_it_was_used(answer: Response) -> None:
    used = kept(answer)
    assert decode_response(encode_response(used)) == used
    assert kept(used) == used


def test_vectors_come_back_to_the_last_bit() -> None:
    answer = Response("", Usage(), "vectors", vectors=((0.1, float("inf"), -0.0), (), (5e-324, float("nan"))))
    assert repr(decode_response(encode_response(kept(answer)))) == repr(answer)


def test_records_without_vectors_are_as_they_always_were() -> None:
    record = b'["hi","stop",[1,2,3,4,0.5,0.25],"why",[],[["a",-0.5]]]'
    answer = Response("hi", Usage(1, 2, 3, 4, 0.5, 0.25), "stop", "why", (), (("a", -0.5),))
    assert decode_response(record) == answer
    assert encode_response(answer) == record


def test_nothing_but_broken_text_is_changed() -> None:
    answer = Response("a\0😀", Usage(1, 2, 3, 4, 0.5, 0.25), "stop", "why", ({"name": "f"},), (("a", -0.5),))
    assert kept(answer) == answer
    assert kept(dataclasses.replace(answer, logprobs=(("a", float("-inf")),))).logprobs == (("a", -9999.0),)


def test_answers_are_there_before_and_after_the_flush_and_in_a_later_log(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    log = CallLog(folder, "a")
    log.append(digest(1), response("one"))
    assert log.get(digest(1)) == response("one")
    asyncio.run(log.flush())
    log.append(digest(2), response("two"))
    asyncio.run(log.flush())
    asyncio.run(log.flush())
    for reader in (log, CallLog(folder, "b", [folder])):
        assert [reader.get(digest(n)) for n in (1, 2, 3)] == [response("one"), response("two"), None]
        assert len(reader) == 2


def test_a_digest_is_stored_once(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    written(folder, ["one"])
    log = CallLog(folder, "b", [folder])
    log.append(digest(0), response("other"))
    log.write()
    assert log.get(digest(0)) == response("one")
    assert not (folder.path / "calls" / f"b{SUFFIX}").exists()


TEXTS = ["first", "a\0b", "😀" * 5, "", "last"]


def record_ends(path: Path) -> list[int]:
    return [offset + size for _, offset, size in scan(path)]


def test_cut_at_any_byte_all_whole_records_stay(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    path = written(folder, TEXTS)
    data, ends = path.read_bytes(), record_ends(path)
    assert ends[-1] == len(data)
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        assert found(folder) == TEXTS[: sum(end <= length for end in ends)]


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_byte_hides_no_record_before_it(tmp_path_factory: Any, where: int, flip: int) -> None:
    folder = new_folder(tmp_path_factory.mktemp("log"))
    path = written(folder, TEXTS)
    data, ends = bytearray(path.read_bytes()), record_ends(path)
    where %= len(data)
    data[where] ^= flip
    path.write_bytes(data)
    assert found(folder) == TEXTS[: sum(end <= where for end in ends)]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_log_without_records(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"x{SUFFIX}"
    path.write_bytes(data)
    assert list(scan(path)) == []


def test_a_length_beyond_the_end_reserves_no_memory(tmp_path: Path) -> None:
    path = tmp_path / f"x{SUFFIX}"
    path.write_bytes(b"\xff\xff\xff\x7f" + b"\0" * 100)
    tracemalloc.start()
    try:
        assert list(scan(path)) == []
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_segment_that_went_away_is_paid_again_and_no_error(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    path = written(folder, TEXTS)
    log = CallLog(folder, "b", [folder])
    path.write_bytes(path.read_bytes()[:10])
    assert log.get(digest(1)) is None
    path.unlink()
    assert log.get(digest(0)) is None
    log.append(digest(0), response("new"))
    log.write()
    assert found(folder) == ["new"]


def test_a_full_disk_keeps_the_answers_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        folder = new_folder(disk / "run")
        log = CallLog(folder, "a")
        log.append(digest(0), response("before"))
        asyncio.run(log.flush())
        (disk / "ballast").write_bytes(b"0" * (200 << 10))
        log.append(digest(1), response("x" * (100 << 10)))
        for _ in range(2):
            with pytest.raises(StorageError, match="The disk is full"):
                asyncio.run(log.flush())
            with pytest.raises(StorageError, match="The disk is full"):
                log.write()
        log.append(digest(2), response("after"))
        assert log.get(digest(1)) == response("x" * (100 << 10))
        assert found(folder) == ["before"]
        (disk / "ballast").unlink()
        asyncio.run(log.flush())
        assert found(folder) == ["before", "x" * (100 << 10), "after"]


def test_what_is_added_during_a_flush_goes_out_with_the_next(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    log = CallLog(folder, "a")

    async def run() -> None:
        for number in range(200):
            log.append(digest(number), response(str(number)))
            flushes = [asyncio.create_task(log.flush()) for _ in range(2)]
            await asyncio.sleep(0)
            log.append(digest(1000 + number), response(str(1000 + number)))
            await asyncio.gather(*flushes)
        await log.flush()

    asyncio.run(run())
    assert sorted(map(int, found(folder))) == [*range(200), *range(1000, 1200)]


WRITER = """
import sys
import tracemalloc
from pathlib import Path
from dialoom.engine import Response
from dialoom.runtime.calllog import CallLog
from dialoom.runtime.folder import RunFolder
from dialoom.usage import Usage
folder, name, first = RunFolder(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = CallLog(folder, name)
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + 300):
    log.append(number.to_bytes(16, "little"), Response(str(number), Usage()))
    log.write()
    print(number, flush=True)
"""


def test_many_writers_and_a_killed_one(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [
        subprocess.Popen([*command, f"w{i}", str(i * 1000)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(3)
    ]
    confirmed: list[int] = []
    seed = random.randrange(2**32)
    victim = random.Random(seed).randrange(20, 280)
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for number, writer in enumerate(writers):
        assert writer.stdout is not None
        for line in writer.stdout:
            if line.endswith("\n"):
                confirmed.append(int(line))
            if number == 2 and len(confirmed) == 600 + victim:
                writer.kill()
        writer.communicate()
    answers = set(map(int, found(folder)))
    assert set(confirmed) <= answers, f"seed {seed}"
    assert len(confirmed) >= 600 + victim


IDENTITY = EngineIdentity("vllm", "m", "r", "v", {"dtype": "bf16"})
SCHEMA = {"type": "object"}
REQUEST = Request((Message("user", "hi"),), Sampling(), Address("d", 0, 0))


def call_digest(request: Request = REQUEST, identity: EngineIdentity = IDENTITY) -> bytes:
    digests = Digests({"e": identity})
    return digests.call("e", request, [digests.message(m) for m in request.messages])


def test_the_digest_covers_all_that_decides_the_answer() -> None:
    change = dataclasses.replace
    variants = [
        call_digest(),
        *(call_digest(identity=change(IDENTITY, **{name: "x"})) for name in ("engine", "model", "revision", "version")),
        call_digest(identity=change(IDENTITY, flags={"dtype": "fp32"})),
        call_digest(change(REQUEST, messages=(Message("system", "hi"),))),
        call_digest(change(REQUEST, messages=(Message("user", "ho"),))),
        call_digest(change(REQUEST, messages=(Message("user", "h"), Message("user", "i")))),
        *(
            call_digest(change(REQUEST, sampling=sampling))
            for sampling in (
                Sampling(temperature=0.5),
                Sampling(max_tokens=7),
                Sampling(top_p=0.5),
                Sampling(seed=1),
                Sampling(stop=("a",)),
                Sampling(logprobs=True),
            )
        ),
        call_digest(change(REQUEST, address=Address("d", 0, 0, trial=1))),
        call_digest(change(REQUEST, answer_schema=SCHEMA)),
        call_digest(change(REQUEST, tools=(SCHEMA,))),
    ]
    assert len(set(variants)) == len(variants)


def test_the_digest_leaves_out_where_the_call_stands() -> None:
    moved = dataclasses.replace(REQUEST, address=Address("other", 3, 2, "m", "c"))
    assert call_digest(moved) == call_digest()
    scripted = dataclasses.replace(IDENTITY, addressed=True)
    assert call_digest(moved, scripted) != call_digest(identity=scripted)


def test_equal_schemas_have_equal_digests_whatever_their_object_and_order() -> None:
    one: dict[str, Any] = {"a": 1, "b": 2}
    two: dict[str, Any] = {"b": 2, "a": 1}
    assert call_digest(dataclasses.replace(REQUEST, answer_schema=one)) == call_digest(
        dataclasses.replace(REQUEST, answer_schema=two)
    )


@given(st.lists(st.tuples(any_text, any_text), min_size=2, max_size=8, unique=True))
def test_messages_have_digests_of_their_own(pairs: list[tuple[str, str]]) -> None:
    digests = Digests({})
    messages = [Message("r" + role.replace("\0", ""), content) for role, content in pairs]
    assert len({digests.message(m) for m in messages}) == len(set(messages))


def test_a_lost_writers_segment_is_taken_over_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make()
    mine = CallLog(folder, "00001-w0-aaa")
    lost = CallLog(folder, "00001-w1-bbb")
    lost.append(b"0" * 16, Response("theirs", Usage(1, 0, 2)))
    lost.write()
    other = CallLog(folder, "00001-w2-ccc")
    other.append(b"1" * 16, Response("other", Usage(1, 0, 2)))
    other.write()

    async def run() -> None:
        await mine.take_over("00001-w1-bbb")
        lost.append(b"2" * 16, Response("too late", Usage(1, 0, 2)))
        await lost.flush()
        await mine.take_over("00001-w1-bbb")
        await mine.take_over("00001-w9-never-wrote")

    asyncio.run(run())
    assert [r.text if (r := mine.get(d * 16)) else None for d in (b"0", b"1", b"2")] == ["theirs", None, None]
