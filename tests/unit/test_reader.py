"""Opening data: paths, folders, patterns, options, fingerprints, and data against its schema."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dialoom.dialogue import Dialogue, Frame, Speaker, Turn
from dialoom.errors import BadInput, DataError, JobError
from dialoom.reader import (
    ReaderConfig,
    check_against,
    data_fingerprint,
    expand_paths,
    open_dialogues,
    reader_config,
)
from dialoom.schema import Intent, Schema, Service, Slot
from support.records import sgd_dialogue, sgd_turn, write_json, write_lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with two SGD files in train/, a schema beside them, and a log."""
    folder = tmp_path / "train"
    folder.mkdir()
    for name in ("dialogues_002.json", "dialogues_001.json", "schema.json", ".dialogues_000.json"):
        write_json(folder / name, [sgd_dialogue(name)])
    write_lines(tmp_path / "log.jsonl", [{"turns": []}])
    return tmp_path


def names(reader: str, *paths: Path | str) -> list[str]:
    return [path.name for path in expand_paths(reader, paths)]


def test_a_folder_gives_its_dialogue_files_in_order(data: Path) -> None:
    assert names("sgd", data / "train") == ["dialogues_001.json", "dialogues_002.json"]
    assert names("sgd", data / "train" / "schema.json") == ["schema.json"]
    assert [d.dialogue_id for d in open_dialogues("sgd", [str(data / "train")])] == [
        "dialogues_001.json",
        "dialogues_002.json",
    ]


def test_patterns_are_expanded_and_each_file_is_read_once(data: Path) -> None:
    train = data / "train"
    assert names("sgd", f"{train}/dialogues_00*.json") == ["dialogues_001.json", "dialogues_002.json"]
    assert names("sgd", f"{data}/**/dialogues_*") == ["dialogues_001.json", "dialogues_002.json"]
    assert names("sgd", f"{data}/tr*") == ["dialogues_001.json", "dialogues_002.json"]
    assert names("sgd", train / "dialogues_002.json", train, f"{data}/../{data.name}/train") == [
        "dialogues_002.json",
        "dialogues_001.json",
    ]


def test_a_name_with_brackets_is_a_file_before_it_is_a_pattern(tmp_path: Path) -> None:
    write_json(tmp_path / "dialogues_[1].json", [])
    assert names("sgd", tmp_path / "dialogues_[1].json") == ["dialogues_[1].json"]


@pytest.mark.parametrize(
    ("path", "what", "hint"),
    [
        ("trian", "no file or folder", "Did you mean '{}/train'?"),
        ("trian/x.json", "no file or folder", "Did you mean '{}/train'?"),
        ("train/dialogues_003.json", "no file or folder", "Did you mean '{}/train/dialogues_00"),
        ("zzz", "no file or folder", "'{}' holds: log.jsonl, train."),
        ("log.jsonl/x", "no file or folder", "'{}/log.jsonl' is not a folder."),
        ("*.txt", "no file matches", "Seen from"),
        ("", "holds no file that reader 'sgd' reads", "Its folders that do: train."),
        ("a\x00b", "no file or folder", "'{}' holds"),
    ],
)
def test_what_is_not_there_is_an_error_with_the_nearest(data: Path, path: str, what: str, hint: str) -> None:
    with pytest.raises(JobError) as caught:
        open_dialogues("sgd", [data / path])
    assert what in caught.value.what
    assert caught.value.hint.startswith(hint.format(data))


def test_empty_folders_and_no_paths_are_errors(data: Path) -> None:
    (data / "empty").mkdir()
    with pytest.raises(JobError, match="It is empty"):
        open_dialogues("sgd", [data / "empty"])
    with pytest.raises(JobError, match=r"It holds: dialogues_001.json"):
        open_dialogues("chat", [data / "train"])
    with pytest.raises(JobError, match="no data is named"):
        open_dialogues("sgd", [])


def test_errors_come_at_once_and_not_with_the_first_dialogue(data: Path) -> None:
    with pytest.raises(JobError, match=r"no reader is named 'sdg'.*Did you mean 'sgd'"):
        open_dialogues("sdg", [data])
    with pytest.raises(JobError, match=r"reader 'multiwoz' has no option 'id'. Did you mean 'ids'?"):
        open_dialogues("multiwoz", [data / "log.jsonl"], {"id": "x"})
    with pytest.raises(JobError, match=r"reader 'failing' has no option 'x'. It has no options"):
        reader_config("failing_reader:FAILING", {"x": 1})
    with pytest.raises(JobError, match=r"option 'roles.nurse' of reader 'chat'.*found 'staff'"):
        reader_config("chat", {"roles": {"nurse": "staff"}})


class _Failing:
    name = "failing"
    config: type[ReaderConfig] = ReaderConfig

    def wants(self, file_name: str) -> bool:
        return True

    def read(self, paths: Sequence[Path], config: Any) -> Iterator[Dialogue | BadInput]:
        yield Dialogue("a", (Turn(Speaker.USER, "hi"),))
        raise KeyError("oops")


FAILING = _Failing()
sys.modules.setdefault("failing_reader", sys.modules[__name__])


def test_a_reader_that_fails_on_its_own_ends_in_one_of_our_errors(data: Path) -> None:
    stream = open_dialogues("failing_reader:FAILING", [data / "log.jsonl"])
    assert isinstance(next(stream), Dialogue)
    with pytest.raises(DataError, match="the reader 'failing_reader:FAILING' failed: KeyError"):
        next(stream)


def test_fingerprints_tell_files_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").write_bytes(b"")
    assert data_fingerprint([tmp_path / "a", tmp_path / "b"]) == [
        {"name": "a", "bytes": 3_000_000, "sha256": hashlib.sha256(b"x" * 3_000_000).hexdigest()},
        {"name": "b", "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()},
    ]
    with pytest.raises(JobError, match="cannot read the file"):
        data_fingerprint([tmp_path / "c"])


CAFE = Service("cafe", slots=(Slot("area"), Slot("time")), intents=(Intent("find"),))
SCHEMA = Schema("s", {"cafe": CAFE})


def dialogue(*frames: Frame, services: tuple[str, ...] = ()) -> Dialogue:
    return Dialogue("d", tuple(Turn(Speaker.USER, "", (frame,)) for frame in frames), services)


def test_a_dialogue_that_fits_its_schema_has_no_problems() -> None:
    good = Frame("cafe", {"area": ("x",)}, "find", ("time",))
    assert check_against(dialogue(good, Frame("cafe", {}, "NONE"), services=("cafe",)), SCHEMA) == []
    assert check_against(Dialogue("d", (Turn(Speaker.SYSTEM, ""),)), SCHEMA) == []


def test_what_the_schema_does_not_know_is_named_once() -> None:
    frames = [Frame("caff", {}), Frame("cafe", {"aera": ("x",)}), Frame("cafe", {"aera": ("y",), "seats": ("2",)})]
    assert check_against(dialogue(*frames, services=("bar",)), SCHEMA) == [
        "unknown service 'bar'. Allowed: cafe.",
        "turn 0: unknown service 'caff'. Did you mean 'cafe'? Allowed: cafe.",
        "turn 1: service 'cafe' has no slot 'aera'. Did you mean 'area'? Allowed: area, time.",
        "turn 2: service 'cafe' has no slot 'seats'. Allowed: area, time.",
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_memory_stays_flat_however_large_the_file(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "dialogues_001.json"
    turn = sgd_turn(text="a few words of talk, " * 200, time=["7 pm"])
    record = json.dumps(sgd_dialogue("d", turn))
    with gzip.open(path, "wt") if packed else path.open("w") as out:
        out.write("[")
        for _ in range(6000):
            out.write(record + ",\n")
        out.write(record + "]")
    tracemalloc.start()
    try:
        count = sum(1 for _ in open_dialogues("sgd", [path]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = 6001 * len(record)
    assert count == 6001
    assert size > 25_000_000
    assert peak < 8_000_000


def test_one_long_turn_does_not_cost_the_square_of_its_length(tmp_path: Path) -> None:
    path = write_json(tmp_path / "dialogues_001.json", [sgd_dialogue("d", sgd_turn(text='\\"[{' * 2_000_000))])
    ((found),) = open_dialogues("sgd", [path])
    assert isinstance(found, Dialogue)
    assert len(found.turns[0].text) == 8_000_000
