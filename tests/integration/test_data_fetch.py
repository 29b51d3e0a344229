"""``dialoom data`` as a person runs it: a process against a real server, killed, started again, and read in a job."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dialoom.dialogue import Dialogue
from dialoom.job import load_job
from dialoom.reader import open_dialogues
from dialoom.runtime.plan import make_plan
from support.file_server import Answer, FileServer
from support.records import mwz_dialogue
from support.shared import ROOT

NAMES = [f"MUL{i:04}.json" for i in range(200)]
RANDOM = random.Random(4)


def archive() -> bytes:
    """MultiWOZ 2.4 in small, as its archive is laid out: split lists as lines under .json, leavings of a Mac."""
    text = "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz ", k=40_000))
    dialogues = {name: mwz_dialogue({"hotel": {"semi": {"name": text[i : i + 3000]}}}) for i, name in enumerate(NAMES)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("MULTIWOZ2.4/", b"")
        made.writestr("MULTIWOZ2.4/data.json", json.dumps(dialogues))
        made.writestr("MULTIWOZ2.4/testListFile.json", "".join(f"{n}\n" for n in NAMES[:50]))
        made.writestr("MULTIWOZ2.4/valListFile.json", "".join(f"{n}\n" for n in NAMES[50:60]))
        made.writestr("MULTIWOZ2.4/hotel_db.json", b"[]")
        made.writestr("__MACOSX/MULTIWOZ2.4/._data.json", b"\0")
    return out.getvalue()


ARCHIVE = archive()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as made:
        made.serve("MULTIWOZ2.4.zip", ARCHIVE)
        yield made


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dialoom.cli.main", "data", *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_list_names_every_data_set(tmp_path: Path) -> None:
    done = run(tmp_path, "list")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("sgd", "sgd_x", "multiwoz21", "multiwoz22", "multiwoz24", "CC BY-SA 4.0"):
        assert name in done.stdout


def test_what_is_fetched_is_read_by_the_job_that_the_command_prints(server: FileServer, tmp_path: Path) -> None:
    server.serve("MULTIWOZ2.4.zip", Answer(ARCHIVE, cut=len(ARCHIVE) // 2), ARCHIVE)
    done = run(tmp_path, "fetch", "multiwoz24", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert "No checksum is known: this fetch was trusted" in done.stdout
    assert "the connection ended after" in done.stderr
    printed = done.stdout.partition("In a job:")[2].replace("schemas/multiwoz.yaml", f"{ROOT}/schemas/multiwoz.yaml")
    rest = "methods: ['support.tiny_method:PLUGIN']\nengines: {main: {use: scripted, answers: job.yaml}}\n"
    lines = [line.strip() for line in printed.strip().splitlines()]
    (tmp_path / "job.yaml").write_text("\n".join(["name: fetched", *lines, rest]))
    data = make_plan(*load_job(tmp_path / "job.yaml")).options.data
    read = list(open_dialogues(data.reader, data.paths, data.options))
    assert all(isinstance(d, Dialogue) for d in read)
    assert [d.dialogue_id for d in read] == NAMES[:50]
    again = run(tmp_path, "fetch", "multiwoz24", "--url", server.url)
    assert again.returncode == 0
    assert "there already, unchanged" in again.stdout
    assert len(server.seen) == 2


def test_a_process_killed_in_the_middle_is_continued_by_the_next(server: FileServer, tmp_path: Path) -> None:
    """The server sends half and goes silent: the process is killed while it waits for more."""
    half = len(ARCHIVE) // 2
    server.serve("MULTIWOZ2.4.zip", Answer(ARCHIVE, cut=half), Answer(status=503, headers={"Retry-After": "60"}))
    process = subprocess.Popen(
        command("fetch", "multiwoz24", "--url", server.url), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "trying again in 60 s" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not (tmp_path / "data" / "multiwoz24").exists()
    server.serve("MULTIWOZ2.4.zip", ARCHIVE)
    done = run(tmp_path, "fetch", "multiwoz24", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert server.ranges()[-1] == f"bytes={half}-"
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["multiwoz24"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["fetch", "sdg"], "no data set is named 'sdg'"),
        (["fetch", "sgd", "--url", "ftp://x/y"], "is no HTTP address"),
        (["fetch", "multiwoz21", "--url", "SERVER"], "wrong checksum"),
        (["fetch", "multiwoz22", "--url", "SERVER"], "the server answers 404"),
    ],
)
def test_mistakes_are_two_lines_and_status_2(
    server: FileServer, tmp_path: Path, arguments: list[str], what: str
) -> None:
    server.serve("MultiWOZ_2.1.zip", ARCHIVE)
    done = run(tmp_path, *(a.replace("SERVER", server.url) for a in arguments))
    assert done.returncode == 2
    assert what in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
