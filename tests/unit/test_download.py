"""Downloads from a real server that breaks off, lies, moves and changes: the whole right file, or an error."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.download import MAX_TRIES, download, forget
from dialoom.errors import FetchError, JobError
from support.file_server import Answer, FileServer, redirect

BODY = random.Random(1).randbytes(900_000)
WHOLE = Answer(BODY)


@pytest.fixture
def server() -> Any:
    with FileServer() as made:
        yield made


class Waits(list[float]):
    """Stands for time.sleep: notes the seconds and does not wait."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def get(server: FileServer, to: Path, path: str = "x", **settings: Any) -> bool:
    settings = {"max_bytes": 10**6, "pause": Waits(), **settings}
    return download(f"{server.url}/{path}", to, **settings)


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_fetched_in_one_go(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE)
    steps: list[tuple[int, int | None]] = []
    assert get(server, tmp_path / "x", observe=lambda done, total, _: steps.append((done, total))) is False
    assert (tmp_path / "x").read_bytes() == BODY
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert (steps[0], steps[-1]) == ((0, len(BODY)), (len(BODY), len(BODY)))
    assert "identity" in server.seen[0][1]["accept-encoding"]
    assert get(server, tmp_path / "x") is False
    assert len(server.seen) == 1


def test_a_broken_connection_is_continued_from_where_it_broke(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=300_000), WHOLE.but(cut=1), WHOLE.but(cut=400_000, reset=True), WHOLE)
    waits = Waits()
    assert get(server, tmp_path / "x", pause=waits) is True
    assert (tmp_path / "x").read_bytes() == BODY
    first, second, third, *_ = (int(r.split("=")[1][:-1]) if r else 0 for r in server.ranges())
    assert (first, second, third) == (0, 300_000, 300_001)
    assert all(headers.get("if-range") == '"v1"' for _, headers in server.seen[1:])
    assert len(waits) == 3


def test_a_process_that_was_killed_is_continued_by_the_next(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=200_000))
    with pytest.raises(FetchError, match="the connection ended after 800,000 of 900,000 bytes"):
        get(server, tmp_path / "x", pause=_stop_after(3, server))
    assert left(tmp_path) == ["x.part", "x.source.json"]
    server.serve("x", WHOLE)
    assert get(server, tmp_path / "x") is True
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.ranges()[-1] == "bytes=800000-"


def _stop_after(n: int, server: FileServer) -> Any:
    """A pause after whose ``n``-th call the server sends nothing more."""
    calls = iter(range(1, 100))

    def pause(_: float) -> None:
        if next(calls) == n:
            server.serve("x", WHOLE.but(cut=200_000), WHOLE.but(cut=0))

    return pause


def test_a_server_that_brings_nothing_more_is_given_up_with_growing_waits(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=0))
    waits = Waits()
    said: list[str] = []
    with pytest.raises(FetchError) as caught:
        get(server, tmp_path / "x", pause=waits, observe=lambda _, __, trouble: said.append(trouble))
    assert "the connection ended after 0 of 900,000 bytes; trying again in 4 s" in said
    assert f"{MAX_TRIES} tries brought nothing more" in caught.value.what
    assert caught.value.where == f"{server.url}/x"
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_a_changed_file_is_not_glued_to_the_old_one(server: FileServer, tmp_path: Path) -> None:
    other = BODY[::-1]
    server.serve("x", WHOLE.but(cut=300_000), Answer(other, etag='"v2"'))
    assert get(server, tmp_path / "x") is False
    assert (tmp_path / "x").read_bytes() == other


def test_without_a_name_for_the_version_a_file_is_continued_only_if_the_whole_is_checked(
    server: FileServer, tmp_path: Path
) -> None:
    for checked, ranges in ((False, [None, None]), (True, [None, "bytes=300000-"])):
        server.seen.clear()
        server.serve("x", WHOLE.but(cut=300_000, etag=""), WHOLE.but(etag=""))
        assert get(server, tmp_path / "x", mix_is_noticed=checked) is checked
        assert (tmp_path / "x").read_bytes() == BODY
        assert server.ranges() == ranges
        forget(tmp_path / "x")


def test_a_date_names_a_version_and_a_weak_tag_does_not(server: FileServer, tmp_path: Path) -> None:
    dated = WHOLE.but(etag='W/"v1"', modified=1_700_000_000.0)
    server.serve("x", dated.but(cut=300_000), dated)
    assert get(server, tmp_path / "x") is True
    assert server.seen[1][1]["if-range"] == "Tue, 14 Nov 2023 22:13:20 GMT"


def test_a_server_without_ranges_starts_over(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=300_000), WHOLE.but(ranges=False))
    assert get(server, tmp_path / "x") is False
    assert (tmp_path / "x").read_bytes() == BODY


@pytest.mark.parametrize(
    "wrong",
    [
        WHOLE.but(shift=-5),
        WHOLE.but(headers={"Content-Range": "bytes 0-9/10"}),
        WHOLE.but(headers={"Content-Range": "nonsense"}),
        WHOLE.but(headers={"Content-Range": f"bytes 300000-{len(BODY)}/{len(BODY) + 1}"}),
    ],
)
def test_a_part_that_does_not_fit_starts_over(server: FileServer, tmp_path: Path, wrong: Answer) -> None:
    server.serve("x", WHOLE.but(cut=300_000), wrong, WHOLE)
    get(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.ranges() == [None, "bytes=300000-", None]


def test_all_bytes_but_the_end_are_there(server: FileServer, tmp_path: Path) -> None:
    """The process ended between the last byte and the renaming: the server has nothing to add."""
    server.serve("x", WHOLE.but(cut=300_000), WHOLE.but(cut=0))
    with pytest.raises(FetchError):
        get(server, tmp_path / "x")
    (tmp_path / "x.part").write_bytes(BODY)
    server.serve("x", WHOLE)
    get(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.ranges()[-1] == f"bytes={len(BODY)}-"


def test_more_than_the_server_has_is_thrown_away(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=300_000), WHOLE.but(cut=0))
    with pytest.raises(FetchError):
        get(server, tmp_path / "x")
    (tmp_path / "x.part").write_bytes(BODY + b"more")
    server.serve("x", WHOLE)
    get(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == BODY


def test_what_was_begun_from_another_address_is_thrown_away(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(cut=300_000), WHOLE.but(cut=0))
    with pytest.raises(FetchError):
        get(server, tmp_path / "x")
    server.serve("y", Answer(BODY[::-1]))
    get(server, tmp_path / "x", path="y")
    assert (tmp_path / "x").read_bytes() == BODY[::-1]
    assert server.ranges("y") == [None]


@pytest.mark.parametrize("note", [b"", b"[1]", b"{}", b'{"url": 1}', b"\xff"])
def test_a_damaged_note_is_no_note(server: FileServer, tmp_path: Path, note: bytes) -> None:
    (tmp_path / "x.source.json").write_bytes(note)
    (tmp_path / "x.part").write_bytes(b"old")
    server.serve("x", WHOLE)
    get(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == BODY


def test_a_busy_server_is_asked_again_after_the_time_it_names(server: FileServer, tmp_path: Path) -> None:
    server.serve(
        "x",
        Answer(status=503, headers={"Retry-After": "7"}),
        Answer(status=429, headers={"Retry-After": "9999"}),
        Answer(status=500, headers={"Retry-After": "Tue, 14 Nov 2023 22:13:20 GMT"}),
        WHOLE,
    )
    waits = Waits()
    get(server, tmp_path / "x", pause=waits)
    assert (tmp_path / "x").read_bytes() == BODY
    assert waits == [7.0, 60.0, 4.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_is_not_tried_again(server: FileServer, tmp_path: Path, status: int) -> None:
    server.serve("x", Answer(b"no", status=status))
    with pytest.raises(FetchError, match=f"the server answers {status}") as caught:
        get(server, tmp_path / "x")
    assert len(server.seen) == 1
    assert ("--url" in caught.value.hint) == (status in (404, 410))
    assert left(tmp_path) == []


def test_nobody_listens(tmp_path: Path) -> None:
    with FileServer() as server:
        url = server.url
    waits = Waits()
    with pytest.raises(FetchError, match="cannot reach the server"):
        download(f"{url}/x", tmp_path / "x", max_bytes=10, pause=waits)
    assert len(waits) == MAX_TRIES - 1


def test_redirects_are_followed_and_keep_the_range(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", redirect("/y"), redirect(f"{server.url}/y", 307))
    server.serve("y", WHOLE.but(cut=300_000), WHOLE)
    assert get(server, tmp_path / "x") is True
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.ranges("y") == [None, "bytes=300000-"]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/x"])
def test_redirects_to_elsewhere_and_in_circles_are_not_followed(server: FileServer, tmp_path: Path, to: str) -> None:
    server.serve("x", redirect(to))
    with pytest.raises(FetchError, match=r"(?i)redirect"):
        get(server, tmp_path / "x")


def test_no_redirect_leads_from_an_encrypted_connection_to_an_open_one() -> None:
    import urllib.request
    from email.message import Message
    from io import BytesIO

    from dialoom.download import _Redirects

    for one, other, allowed in (
        ("https://a/x", "http://b/x", False),
        ("http://a/x", "https://b/x", True),
        ("https://a/x", "https://b/x", True),
        ("http://a/x", "http://b/x", True),
    ):
        request = urllib.request.Request(one)
        if allowed:
            found = _Redirects().redirect_request(request, BytesIO(), 302, "", Message(), other)
            assert found is not None
            assert found.full_url == other
        else:
            with pytest.raises(FetchError, match="redirects to"):
                _Redirects().redirect_request(request, BytesIO(), 302, "", Message(), other)


@pytest.mark.parametrize("answer", [WHOLE, WHOLE.but(length=False), WHOLE.but(headers={"Content-Length": "x"})])
def test_a_file_that_is_too_large_is_not_kept(server: FileServer, tmp_path: Path, answer: Answer) -> None:
    server.serve("x", answer.but(length="Content-Length" not in answer.headers and answer.length))
    with pytest.raises(FetchError, match="larger than 500,000 bytes"):
        get(server, tmp_path / "x", max_bytes=500_000)
    assert left(tmp_path) == []


def test_a_file_of_unknown_length_is_taken_to_its_end(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(length=False))
    totals: set[int | None] = set()
    get(server, tmp_path / "x", observe=lambda _, total, __: totals.add(total))
    assert (tmp_path / "x").read_bytes() == BODY
    assert totals == {None}


def test_a_packed_answer_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", WHOLE.but(headers={"Content-Encoding": "gzip"}))
    with pytest.raises(FetchError, match="the server packs the file"):
        get(server, tmp_path / "x")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "x", "https:///x", ""])
def test_only_http_addresses(tmp_path: Path, url: str) -> None:
    with pytest.raises(JobError, match="is no HTTP address"):
        download(url, tmp_path / "x", max_bytes=10)


def test_an_empty_file_is_a_file(server: FileServer, tmp_path: Path) -> None:
    server.serve("x", b"")
    get(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b""


CUTS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        cut=st.integers(0, 3000),
        reset=st.booleans(),
        ranges=st.booleans(),
        etag=st.sampled_from(['"v1"', ""]),
        shift=st.sampled_from([0, 0, 0, 7]),
        status=st.sampled_from([200, 200, 200, 503]),
    ),
    max_size=3,
)


@given(CUTS, st.binary(max_size=2000), st.booleans())
def test_however_the_server_behaves_the_file_comes_out_right(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[dict[str, Any]], body: bytes, checked: bool
) -> None:
    to = tmp_path_factory.getbasetemp() / "drawn"
    forget(to)
    with FileServer() as server:
        server.serve("x", *(Answer(body, **cut) for cut in cuts), Answer(body))
        get(server, to, mix_is_noticed=checked)
    assert to.read_bytes() == body
