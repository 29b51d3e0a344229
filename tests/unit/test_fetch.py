"""Data sets from a real server: the catalogue, checksums, first trust, and a target that is whole or as it was."""

from __future__ import annotations

import fcntl
import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dialoom.errors import FetchError, JobError, StorageError
from dialoom.fetch import RECORD, DataSet, Fetched, Progress, catalogue, fetch
from dialoom.reader import expand_paths
from support.file_server import Answer, FileServer
from support.shared import shared_path

A, B = b'{"a": 1}' * 50_000, b'{"b": 2}'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


ZIP = zipped({"top/data.json": A, "top/db.json": B, "top/note.md": b"x", "__MACOSX/._data.json": b"x"})
COMMON: dict[str, Any] = {"title": "T", "licence": "L", "home": "h", "base": "https://nowhere.invalid/x", "limit_mb": 1}
SETS = {
    "pinned": DataSet(**COMMON, files={"train/a.json": sha(A), "b.json": sha(B)}),
    "trusted": DataSet(**COMMON, files={"train/a.json": None, "b.json": None}),
    "packed": DataSet(
        **COMMON,
        archive={"path": "x.zip", "sha256": None, "keep": ["top/*.json"], "strip": 1},
        files={"data.json": sha(A)},
        holds={"*.json": 2},
    ),
    "sealed": DataSet(**COMMON, archive={"path": "x.zip", "sha256": sha(ZIP), "keep": ["top/*"], "strip": 1}),
}


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as made:
        made.serve("train/a.json", A)
        made.serve("b.json", B)
        made.serve("x.zip", ZIP)
        yield made


def get(server: FileServer, name: str, to: Path, **settings: Any) -> Fetched:
    return fetch(name, to, url=server.url, pause=lambda _: None, data_sets=SETS, **settings)


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def content(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(folder).items() if name != RECORD}


@pytest.mark.parametrize("name", SETS)
def test_a_data_set_is_there_with_a_record_and_nothing_else(server: FileServer, tmp_path: Path, name: str) -> None:
    found = get(server, name, tmp_path / "new" / "set")
    wanted = {
        "pinned": {"train/a.json": A, "b.json": B},
        "trusted": {"train/a.json": A, "b.json": B},
        "packed": {"data.json": A, "db.json": B},
        "sealed": {"data.json": A, "db.json": B, "note.md": b"x"},
    }[name]
    assert content(tmp_path / "new" / "set") == wanted
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["set"]
    assert (found.new, found.files, found.size_bytes) == (True, len(wanted), sum(map(len, wanted.values())))
    record = yaml.safe_load((found.folder / RECORD).read_text())
    assert {path: (e["bytes"], e["sha256"]) for path, e in record["files"].items()} == {
        path: (len(data), sha(data)) for path, data in wanted.items()
    }
    assert (record["name"], record["licence"], record["source"], record["fetched_from"]) == (
        name,
        "L",
        COMMON["base"],
        server.url,
    )


def test_what_is_there_is_checked_and_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    get(server, "trusted", tmp_path / "set")
    asked = len(server.seen)
    phases: list[Progress] = []
    found = get(server, "trusted", tmp_path / "set", observe=phases.append)
    assert (found.new, found.files) == (False, 2)
    assert len(server.seen) == asked
    assert [p.phase for p in phases] == ["checking"] * 2
    (tmp_path / "set" / "my own list.txt").write_text("mine")
    assert get(server, "trusted", tmp_path / "set").new is False


def test_changed_and_missing_files_are_named_and_fetched_again_on_demand(server: FileServer, tmp_path: Path) -> None:
    get(server, "trusted", tmp_path / "set")
    (tmp_path / "set" / "b.json").write_bytes(b"changed")
    (tmp_path / "set" / "train" / "a.json").unlink()
    with pytest.raises(FetchError, match=r"b.json has changed, train/a.json is missing") as caught:
        get(server, "trusted", tmp_path / "set")
    assert "--again" in caught.value.hint
    assert get(server, "trusted", tmp_path / "set", again=True).new is True
    assert content(tmp_path / "set") == {"train/a.json": A, "b.json": B}
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize("name", ["pinned", "sealed"])
def test_a_wrong_checksum_is_an_error_and_nothing_is_kept(server: FileServer, tmp_path: Path, name: str) -> None:
    evil = zipped({"top/data.json": b"evil"})
    server.serve("b.json", b"evil")
    server.serve("x.zip", evil)
    with pytest.raises(FetchError, match="wrong checksum") as caught:
        get(server, name, tmp_path / "set")
    assert sha(evil if name == "sealed" else b"evil") in caught.value.what
    assert not (tmp_path / "set").exists()
    kept = sorted(p.name for p in tmp_path.rglob("*") if p.name not in ("lock", ".set.fetch"))
    assert kept == ([] if name == "sealed" else ["train_a.json", "train_a.json.source.json"])


def test_a_file_glued_from_two_versions_is_fetched_once_more(server: FileServer, tmp_path: Path) -> None:
    """Without a version name of the server a part may be continued with another version: the checksum tells."""
    old = Answer(A[::-1], etag="", cut=200_000)
    server.serve("train/a.json", old, Answer(A, etag=""))
    assert get(server, "pinned", tmp_path / "set").new
    assert content(tmp_path / "set") == {"train/a.json": A, "b.json": B}
    assert server.ranges("a.json") == [None, "bytes=200000-", None]


def test_a_file_in_an_archive_has_its_checksum_too(server: FileServer, tmp_path: Path) -> None:
    server.serve("x.zip", zipped({"top/data.json": b"evil", "top/db.json": B}))
    with pytest.raises(FetchError, match=r"wrong checksum: data.json"):
        get(server, "packed", tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("held", "what"),
    [
        ({"top/data.json": A}, r"\*.json: 1 files, not 2"),
        ({"top/x.json": A, "top/db.json": B}, r"data.json is missing"),
        ({"other/data.json": A, "other/db.json": B}, r"data.json is missing, \*.json: 0 files, not 2"),
    ],
)
def test_an_archive_without_the_files_is_an_error(
    server: FileServer, tmp_path: Path, held: dict[str, bytes], what: str
) -> None:
    server.serve("x.zip", zipped(held))
    with pytest.raises(FetchError, match=what):
        get(server, "packed", tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("evil", "what"),
    [
        (zipped({"top/data.json": A, "top/db.json": B, "../../evil": b"x"}), "leads out of the folder"),
        (zipped({"top/data.json": A, "top/db.json": B, "/evil": b"x"}), "an absolute name"),
        (zipped({"top/data.json": b"\0" * 2_000_000}), "unpacks to more than 1,000,000 bytes"),
        (ZIP[: len(ZIP) // 2], "no zip or tar archive"),
        (b"<html>sign in</html>", "no zip or tar archive"),
    ],
)
def test_a_bad_archive_is_refused_and_the_next_fetch_starts_anew(
    server: FileServer, tmp_path: Path, evil: bytes, what: str
) -> None:
    server.serve("x.zip", evil)
    with pytest.raises(FetchError, match=what):
        get(server, "packed", tmp_path / "in" / "set")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    server.serve("x.zip", ZIP)
    assert get(server, "packed", tmp_path / "in" / "set").files == 2


def test_the_first_fetch_is_trusted_and_the_next_must_be_the_same(server: FileServer, tmp_path: Path) -> None:
    get(server, "trusted", tmp_path / "set")
    before = files(tmp_path / "set")
    server.serve("b.json", b"another")
    with pytest.raises(FetchError, match=r"not what the first fetch brought: b.json") as caught:
        get(server, "trusted", tmp_path / "set", again=True)
    assert "remove the folder" in caught.value.hint
    assert files(tmp_path / "set") == before


def test_an_archive_packed_anew_is_the_same_if_its_files_are(server: FileServer, tmp_path: Path) -> None:
    get(server, "packed", tmp_path / "set")
    server.serve("x.zip", zipped({"top/db.json": B, "top/data.json": A}))
    assert get(server, "packed", tmp_path / "set", again=True).new
    assert content(tmp_path / "set") == {"data.json": A, "db.json": B}


def test_a_new_source_in_the_catalogue_is_trusted_anew(server: FileServer, tmp_path: Path) -> None:
    get(server, "trusted", tmp_path / "set")
    server.serve("b.json", b"another")
    moved = {"trusted": SETS["trusted"].model_copy(update={"base": "https://elsewhere.invalid"})}
    fetch("trusted", tmp_path / "set", url=server.url, again=True, data_sets=moved)
    assert content(tmp_path / "set")["b.json"] == b"another"


def test_files_of_others_are_not_overwritten(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "set" / "mine").write_text("mine")
    for name in ("set", "file"):
        with pytest.raises(FetchError, match="is there, and was not fetched"):
            get(server, "trusted", tmp_path / name)
    (tmp_path / "set" / "mine").unlink()
    get(server, "trusted", tmp_path / "set")
    with pytest.raises(FetchError, match="the folder holds 'trusted', not 'pinned'"):
        get(server, "pinned", tmp_path / "set", again=True)
    (tmp_path / "set" / "train" / "mine").write_text("mine")
    with pytest.raises(FetchError, match="files that were not fetched: train/mine"):
        get(server, "trusted", tmp_path / "set", again=True)
    assert (tmp_path / "set" / "train" / "mine").read_text() == "mine"


@pytest.mark.parametrize("record", ["", "[]", "name: [", "name: trusted", "name: trusted\nfiles: {a: {bytes: x}}"])
def test_a_damaged_record_is_said(server: FileServer, tmp_path: Path, record: str) -> None:
    get(server, "trusted", tmp_path / "set")
    (tmp_path / "set" / RECORD).write_text(record)
    with pytest.raises(FetchError, match="the record cannot be read"):
        get(server, "trusted", tmp_path / "set")


def test_files_that_came_before_the_break_are_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    server.serve("b.json", Answer(b"no", status=404))
    with pytest.raises(FetchError, match="404"):
        get(server, "trusted", tmp_path / "set")
    assert not (tmp_path / "set").exists()
    server.serve("b.json", B)
    get(server, "trusted", tmp_path / "set")
    assert [path for path, _ in server.seen] == ["/train/a.json", "/b.json", "/b.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_replacement_cut_short_is_put_back(server: FileServer, tmp_path: Path) -> None:
    get(server, "trusted", tmp_path / "set")
    before = files(tmp_path / "set")
    (tmp_path / ".set.fetch").mkdir()
    (tmp_path / "set").rename(tmp_path / ".set.fetch" / "replaced")
    server.serve("b.json", b"another")
    with pytest.raises(FetchError, match="not what the first fetch brought"):
        get(server, "trusted", tmp_path / "set")
    assert files(tmp_path / "set") == before


def test_one_fetch_at_a_time(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / ".set.fetch").mkdir()
    with (tmp_path / ".set.fetch" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match="another fetch into this folder is under way"):
            get(server, "trusted", tmp_path / "set")
    assert get(server, "trusted", tmp_path / "set").new


def test_a_place_that_cannot_be_written_is_an_error_of_storage(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot write or read"):
        get(server, "trusted", tmp_path / "file" / "set")


def test_progress_counts_files_and_bytes(server: FileServer, tmp_path: Path) -> None:
    seen: list[Progress] = []
    get(server, "pinned", tmp_path / "set", observe=seen.append)
    last = {p.file: p for p in seen if p.phase == "downloading"}
    assert {f: (p.n, p.files, p.done_bytes, p.total_bytes) for f, p in last.items()} == {
        "train/a.json": (1, 2, len(A), len(A)),
        "b.json": (2, 2, len(B), len(B)),
    }


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(JobError, match=r"no data set is named 'multiwoz2'. Did you mean 'multiwoz2\d'"):
        fetch("multiwoz2")


def test_the_catalogue_is_whole() -> None:
    assert {"sgd", "sgd_x", "multiwoz21", "multiwoz22", "multiwoz24"} <= set(catalogue())
    for data_set in catalogue().values():
        assert data_set.base.startswith("https://")
        assert data_set.archive or data_set.files
        pinned = data_set.base + (data_set.archive.path if data_set.archive else "")
        assert any(len(part.removesuffix(".zip")) == 40 for part in pinned.split("/")), "no commit in the address"
        assert "FOLDER" in data_set.use
        assert yaml.safe_load(data_set.use)


@pytest.mark.shared
def test_known_checksums_are_those_of_the_public_files() -> None:
    for name, path, place in (
        ("multiwoz22", "schema.json", ("multiwoz", "mwz22_schema.json")),
        ("sgd", "test/schema.json", ("sgd", "test", "schema.json")),
        ("sgd", "test/dialogues_001.json", ("sgd", "test", "dialogues_001.json")),
        *(("sgd_x", f"v{i}/test/schema.json", ("sgd_x", f"v{i}", "test", "schema.json")) for i in (1, 2, 3, 4)),
    ):
        assert catalogue()[name].files[path] == sha(shared_path(*place).read_bytes())


def test_what_a_reader_takes_from_a_fetched_folder(server: FileServer, tmp_path: Path) -> None:
    """The record, and the lists and data bases that lie beside the dialogues, are not taken for dialogues."""
    names = ["data.json", "testListFile.json", "valListFile.json", "hotel_db.json", "ontology.json", "README.json"]
    server.serve("MULTIWOZ2.4.zip", zipped({f"MULTIWOZ2.4/{name}": b"{}" for name in names}))
    fetch("multiwoz24", tmp_path / "set", url=server.url)
    assert [p.name for p in expand_paths("multiwoz", [tmp_path / "set"])] == ["data.json"]
