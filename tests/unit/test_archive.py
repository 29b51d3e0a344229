"""Archives: the chosen files come out, and whatever leads outside, links, bombs or is damaged writes nothing."""

from __future__ import annotations

import contextlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.archive import unpack
from dialoom.errors import FetchError


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


PACKERS: dict[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "zip": zipped,
    "tar": lambda files: tarred(files, "w"),
    "tar.gz": tarred,
    "tar.xz": lambda files: tarred(files, "w:xz"),
}


def out_of(folder: Path, archive: bytes, **settings: Any) -> list[str]:
    """What comes out of an archive, checked to be what is there."""
    (folder / "archive").write_bytes(archive)
    settings = {"keep": ["*", "*/*", "*/*/*"], "strip": 0, "max_bytes": 10**6, **settings}
    found = unpack(folder / "archive", folder / "out", **settings)
    there = sorted(p.relative_to(folder / "out").as_posix() for p in (folder / "out").rglob("*") if p.is_file())
    assert there == sorted(map(str, found))
    return there


def refused(folder: Path, archive: bytes, **settings: Any) -> FetchError:
    """The error over an archive of which nothing may have been written, inside or outside."""
    before = set(folder.parent.rglob("*"))
    with pytest.raises(FetchError) as caught:
        out_of(folder, archive, **settings)
    assert caught.value.where == str(folder / "archive")
    assert set(folder.parent.rglob("*")) - before <= {folder / "archive"}
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner"


TREE = {"top/": b"", "top/a.json": b"1", "top/b.txt": b"22", "top/sub/c.json": b"333", "__MACOSX/._a.json": b"x"}


@pytest.mark.parametrize("kind", PACKERS)
def test_the_files_that_fit_come_out_without_their_first_folders(folder: Path, kind: str) -> None:
    found = out_of(folder, PACKERS[kind](TREE), keep=["top/*.json", "top/sub/*"], strip=1)
    assert found == ["a.json", "sub/c.json"]
    assert (folder / "out" / "sub" / "c.json").read_bytes() == b"333"


def test_a_pattern_matches_folder_by_folder(folder: Path) -> None:
    assert out_of(folder, zipped(TREE), keep=["*.json"]) == []
    assert out_of(folder, zipped(TREE), keep=["*/*.json"]) == ["__MACOSX/._a.json", "top/a.json"]


def test_dots_in_names_that_lead_nowhere_are_let_pass(folder: Path) -> None:
    found = out_of(folder, tarred({"./": b"", "./top/./a.json": b"1", "top/..b": b"2", "top/...": b"3"}))
    assert found == ["top/...", "top/..b", "top/a.json"]


OUTSIDE = {
    "../a.json": "a name that leads out of the folder",
    "top/../../a.json": "a name that leads out of the folder",
    "top/..": "a name that leads out of the folder",
    "..": "no name of a file",
    "/tmp/a.json": "an absolute name",
    "//a.json": "an absolute name",
    "C:/a.json": "an absolute name",
    "top\\..\\..\\a.json": "a backslash in a name",
    "top/a\n.json": "unprintable characters in a name",
    "top/\u202ea.json": "unprintable characters in a name",
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_names_that_lead_outside_are_refused_wherever_they_stand(folder: Path, kind: str, name: str) -> None:
    for files in ({name: b"x", **TREE}, {**TREE, name: b"x"}):
        error = refused(folder, PACKERS[kind](files), keep=["top/*.json"])
        assert OUTSIDE[name] in error.what


def test_a_name_with_a_nul_is_refused_though_it_is_cut_there_by_others(folder: Path) -> None:
    archive = zipped({"top/a.jsonX../../b": b"x"}).replace(b"top/a.jsonX../../b", b"top/a.json\0../../b")
    assert "unprintable" in refused(folder, archive).what


def linked(name: str, kind: bytes, to: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, to
        archive.addfile(info)
        after = tarfile.TarInfo(f"{name}/evil")
        after.size = 4
        archive.addfile(after, io.BytesIO(b"evil"))
    return out.getvalue()


KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]


@pytest.mark.parametrize("kind", KINDS)
def test_links_and_devices_of_a_tar_are_refused(folder: Path, kind: bytes) -> None:
    for to in ("/etc", "..", "a"):
        assert "a link or special file" in refused(folder, linked("top", kind, to)).what


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_of_a_zip_are_refused(folder: Path, kind: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("top")
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        archive.writestr(info, "/etc")
    assert "a link or special file" in refused(folder, out.getvalue()).what


def test_modes_of_files_and_folders_are_no_links(folder: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, mode in (("top/", stat.S_IFDIR | 0o755), ("top/a", stat.S_IFREG | 0o644), ("top/b", 0o600)):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"")
    assert out_of(folder, out.getvalue()) == ["top/a", "top/b"]


@pytest.mark.parametrize("kind", PACKERS)
def test_what_unpacks_to_too_much_is_refused_by_what_it_says(folder: Path, kind: str) -> None:
    bomb = PACKERS[kind]({"a": b"\0" * 600_000, "b": b"\0" * 600_000})
    assert "unpacks to more than 1,000,000 bytes" in refused(folder, bomb).what
    assert out_of(folder, bomb, max_bytes=1_200_000) == ["a", "b"]


def lying_zip(said: int, data: bytes) -> bytes:
    """A zip whose only member says it has ``said`` bytes."""
    archive = bytearray(zipped({"a": data}))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = archive.index(mark) + offset
        archive[at : at + 4] = said.to_bytes(4, "little")
    return bytes(archive)


@pytest.mark.parametrize("said", [10, 900_000])
def test_a_member_that_lies_about_its_size_is_refused(folder: Path, said: int) -> None:
    with pytest.raises(FetchError, match=r"is not as long as it says|damaged"):
        out_of(folder, lying_zip(said, b"\0" * 800_000), max_bytes=950_000)
    written = [p.stat().st_size for p in (folder / "out").rglob("*")] if (folder / "out").exists() else []
    assert sum(written) <= 900_000


def test_a_member_without_a_name_is_refused(folder: Path) -> None:
    archive = bytearray(zipped({"a": b"x"}))
    for mark, offset in ((b"PK\x03\x04", 26), (b"PK\x01\x02", 28)):
        archive[archive.index(mark) + offset] = 0
    refused(folder, bytes(archive))


def test_an_encrypted_member_is_refused(folder: Path) -> None:
    archive = bytearray(zipped({"a": b"secret"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        archive[archive.index(mark) + offset] |= 1
    assert "encrypted" in refused(folder, bytes(archive)).what


def test_names_that_fall_together_are_refused(folder: Path) -> None:
    assert "twice" in refused(folder, tarred({"a/b": b"1", "A/B": b"2"})).what
    assert "twice" in refused(folder, tarred({"a/b": b"1", "a//b": b"2"})).what
    assert "below a file" in refused(folder, tarred({"a": b"1", "a/b": b"2"})).what
    assert "get one name" in refused(folder, zipped({"x/a": b"1", "y/a": b"2"}), strip=1).what


def test_too_many_members_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialoom.archive.MAX_MEMBERS", 3)
    assert "more than 3 members" in refused(folder, zipped({str(i): b"" for i in range(4)})).what


@pytest.mark.parametrize("data", [b"", b"<html>404</html>", b"PK\x03\x04", b"\x1f\x8b", b"x" * 2000])
def test_what_is_no_archive_is_said(folder: Path, data: bytes) -> None:
    assert "no zip or tar archive" in refused(folder, data).what


PATHS = (
    st.lists(st.sampled_from(["a", "b", "c.json", "..", "", ".", "\u00e9"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)
)
FILES = st.dictionaries(PATHS, st.binary(max_size=50), max_size=4)


@given(st.sampled_from(["zip", "tar.gz"]), FILES, st.data())
def test_nothing_is_ever_written_outside_and_damage_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("drawn") / "inner"
    folder.mkdir()
    archive = bytearray(PACKERS[kind](files))
    for _ in range(data.draw(st.integers(0, 3))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FetchError):
        out_of(folder, bytes(archive))
    assert {p.name for p in folder.parent.iterdir()} == {"inner"}
    assert {p.name for p in folder.iterdir()} <= {"archive", "out"}


@given(st.sampled_from(list(PACKERS)), st.dictionaries(st.sampled_from(["a", "b/c", "b/d/e"]), st.binary(max_size=99)))
def test_what_is_packed_comes_out(tmp_path_factory: pytest.TempPathFactory, kind: str, files: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    if kind != "zip" and not files:
        return
    assert out_of(folder, PACKERS[kind](files)) == sorted(files)
    assert all((folder / "out" / PurePosixPath(name)).read_bytes() == data for name, data in files.items())
