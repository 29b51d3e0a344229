"""The run folder: files whole or not at all, one driver at a time, errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import RunRefused, StorageError
from dialoom.runtime.folder import RunFolder, open_folder
from support.tmpfs import small_disk

REPO = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.make()
    return made


def files(folder: RunFolder) -> list[str]:
    return sorted(str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file())


def test_put_and_read(folder: RunFolder) -> None:
    folder.put("a/b/c.bin", b"\0\xff")
    assert folder.read("a/b/c.bin") == b"\0\xff"
    assert folder.read("a/b/other") is None
    assert files(folder) == ["a/b/c.bin"]


def test_names_leave_unfinished_files_out(folder: RunFolder) -> None:
    folder.put("parts/b.part", b"")
    folder.put("parts/a.part", b"")
    (folder.path / "parts" / ".c.part.tmp").write_bytes(b"")
    (folder.path / "parts" / ".d.part").write_bytes(b"")
    (folder.path / "parts" / "e.other").write_bytes(b"")
    assert folder.names("parts", ".part") == ["parts/a.part", "parts/b.part"]
    assert folder.names("no-such-folder", ".part") == []


def test_readers_see_the_old_or_the_new_file_and_never_half(folder: RunFolder) -> None:
    versions = [bytes([i]) * 200_000 for i in range(8)]
    folder.put("x", versions[0])
    seen: set[bytes | None] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(folder.read("x"))

    reader = threading.Thread(target=read)
    reader.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda data: folder.put("x", data), versions * 5))
    stop.set()
    reader.join()
    assert seen <= set(versions)
    assert files(folder) == ["x"]


@given(st.dictionaries(st.text(max_size=5), st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=5), max_size=4))
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, record: dict[str, object]) -> None:
    folder = RunFolder(tmp_path_factory.getbasetemp())
    folder.put_json("x.json", record)
    assert folder.read_json("x.json") == record


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"\xff", b'{"a": 1'])
def test_a_damaged_record_is_named(folder: RunFolder, data: bytes) -> None:
    folder.put("run.json", data)
    with pytest.raises(StorageError, match=r"run\.json: is damaged"):
        folder.read_json("run.json")
    assert folder.read_json("other.json") is None


def test_append_adds_and_says_where(folder: RunFolder) -> None:
    assert folder.append("calls/x", b"abc", 0) == 0
    assert folder.append("calls/x", b"de", 1) == 3
    assert folder.fetch("calls/x").read_bytes() == b"abcde"


def test_epochs_are_unique_under_threads_and_after_gaps(folder: RunFolder) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: folder.next_epoch(), range(40)))
    assert sorted(numbers) == list(range(1, 41))
    (folder.path / "epochs" / "00003.json").unlink()
    assert folder.next_epoch() == 41


HOLD = """
import sys
from dialoom.runtime.folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder's lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_driver_at_a_time(folder: RunFolder) -> None:
    with holder(folder) as process:
        message = rf"another process is running this job \(.* pid {process.pid}\)"
        with pytest.raises(RunRefused, match=message), folder.locked():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with folder.locked():
            pass


def test_errors_of_the_run_are_not_taken_for_errors_of_the_folder(folder: RunFolder) -> None:
    with pytest.raises(BrokenPipeError), folder.locked():
        raise BrokenPipeError("standard output was closed")
    with folder.locked():
        pass


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(StorageError, match="Check the path"):
        RunFolder(tmp_path / "run").make()


AS_NOBODY = """
import os, sys
from dialoom.errors import StorageError
from dialoom.runtime.folder import RunFolder
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
for work in (lambda f: f.make(), lambda f: f.put("x", b""), lambda f: f.append("x", b"", 0), lambda f: f.next_epoch(),
             lambda f: f.locked().__enter__(), lambda f: f.read("secret"), lambda f: f.names("hidden", "")):
    try:
        work(RunFolder(sys.argv[1]))
        print("no error")
    except StorageError as error:
        print(error)
"""


def test_missing_rights() -> None:
    with tempfile.TemporaryDirectory() as place:  # not tmp_path: its parents are closed to others
        run = Path(place)
        (run / "secret").write_text("")
        (run / "secret").chmod(0)
        (run / "epochs").mkdir(0o555)
        (run / "hidden").mkdir(0)
        run.chmod(0o555)
        environment = {**os.environ, "PYTHONPATH": str(REPO / "platform")}
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, place], capture_output=True, text=True, env=environment, check=False
        )
        run.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 7
    for line in done.stdout.splitlines():
        assert line.startswith(place)
        assert line.endswith("Permission denied. Give this user the right to write there, or set run.root.")


def test_a_place_that_cannot_be_opened() -> None:
    with pytest.raises(StorageError, match="nosuchscheme"):
        open_folder("nosuchscheme://bucket/x").make()


def test_a_full_disk_leaves_what_was_there_and_nothing_half(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        folder = RunFolder(disk / "run")
        folder.make()
        folder.put("parts/first", b"1" * 1000)
        folder.append("calls/x", b"2" * 1000, 0)
        (disk / "ballast").write_bytes(b"0" * (100 << 10))
        for work in (
            lambda: folder.put("parts/second", b"3" * (200 << 10)),
            lambda: folder.put("parts/first", b"3" * (200 << 10)),
            lambda: folder.append("calls/x", b"3" * (200 << 10), 1),
        ):
            with pytest.raises(StorageError, match=r"No space left on device\. The disk is full: free some space"):
                work()
        assert files(folder) == ["calls/x", "parts/first"]
        assert folder.read("parts/first") == b"1" * 1000
        assert folder.read("calls/x") == b"2" * 1000
        (disk / "ballast").unlink()
        assert folder.append("calls/x", b"4", 1) == 1000
        assert folder.read("calls/x") == b"2" * 1000 + b"4"


LIMITED = """
import sys
from dialoom.errors import StorageError
from dialoom.runtime.folder import RunFolder
folder = RunFolder(sys.argv[1])
folder.append("calls/x", b"2" * 1000, 0)
for work in (lambda: folder.put("parts/x", b"3" * 300_000), lambda: folder.append("calls/x", b"3" * 300_000, 1)):
    try:
        work()
    except StorageError as error:
        print(error.what)
"""


def test_a_file_size_limit_is_a_storage_error_too(folder: RunFolder) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)], capture_output=True, text=True, preexec_fn=limit, check=True
    )
    assert done.stdout.splitlines() == ["File too large", "File too large"]
    assert files(folder) == ["calls/x"]
    assert folder.read("calls/x") == b"2" * 1000
