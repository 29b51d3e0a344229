"""YAML with the line of every field: where errors point, and what no file may do to us."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import JobError
from dialoom.yaml_file import YamlFile, read_yaml, yaml_value


def read(folder: Path, text: str | bytes) -> YamlFile:
    path = folder / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path)


def test_lines_of_keys_and_items(tmp_path: Path) -> None:
    file = read(tmp_path, "a:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
    assert file.data == {"a": {"b": 1, "c": ["x", {"y": 2}]}}
    assert file.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "y"): 5,
    }


def test_where_names_file_line_and_field(tmp_path: Path) -> None:
    file = read(tmp_path, "a:\n  b: 1\n7: x\n")
    path = tmp_path / "job.yaml"
    assert file.where(("a", "b")) == f"{path}:2: a.b"
    assert file.where(("a", "missing", "deeper")) == f"{path}:1: a.missing.deeper"
    assert file.where((7,)) == f"{path}:3: 7"
    assert file.where(()) == f"{path}:1"


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))

WRONG = {
    "tab": ("a:\n\tb: 1\n", 2, "tab"),
    "open quote": ("a: 1\nb: 'x\n", 3, "end of stream"),
    "unknown alias": ("a: *x\n", 1, "alias"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "another document"),
    "python object": ("a: 1\nb: !!python/object/apply:os.getpid []\n", 2, "tag"),
    "no such date": ("a: 1\nb: 2024-99-99\n", 2, "no timestamp: 2024-99-99"),
    "no int": ("a: !!int foo\n", 1, "no int: foo"),
    "no float": ("a: !!float foo\n", 1, "no float: foo"),
    "no bool": ("a: !!bool foo\n", 1, "no bool: foo"),
    "no date at all": ("a: !!timestamp foo\n", 1, "no timestamp: foo"),
    "endless number": ("a: 1\nb: " + "9" * 5000, 2, "no int"),
    "list as a key": ("a: 1\n? [a, b]\n: 1\n", 2, "plain text"),
    "mapping as a key": ("? {a: b}\n: 1\n", 1, "plain text"),
    "key twice": ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice"),
    "key twice below": ("a:\n  - x: 1\n    x: 2\n", 3, "'x' is given twice"),
    "list that holds itself": ("a: &a [*a]\n", 1, "alias"),
    "mapping that holds itself": ("a: &a\n  b: *a\n", 1, "alias"),
    "aliases without end": (ALIASES, None, "100000 fields"),
    "deep": ("a: " + "[" * 4000 + "]" * 4000, 1, "nesting"),
    "null character": ("a: \0\n", 1, "control characters"),
    "half a surrogate": ('a: "\\ud800"\n', 1, "escape code"),
    "empty": ("", 1, "mapping"),
    "only a comment": ("# nothing\n", 1, "mapping"),
    "a list": ("- a\n", 1, "mapping"),
    "a text": ("hello\n", 1, "mapping"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(name: str, tmp_path: Path) -> None:
    text, line, what = WRONG[name]
    with pytest.raises(JobError) as caught:
        read(tmp_path, text)
    assert what in str(caught.value)
    if line is not None:
        assert caught.value.where == f"{tmp_path}/job.yaml:{line}"


def test_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="utf-8"):
        read(tmp_path, b"a: \xff\xfe\n")


def test_missing_file_lists_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text("a: 1")
    with pytest.raises(JobError, match=r"no such file\. YAML files in .*: quick\.yaml"):
        read_yaml(tmp_path / "quik.yaml")


@pytest.mark.parametrize("name", [".", "a\0b", "x" * 300])
def test_paths_that_are_no_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read"):
        read_yaml(tmp_path / name)


def test_shared_aliases_and_merges_are_fine(tmp_path: Path) -> None:
    file = read(tmp_path, "base: &base {x: 1}\na: *base\nb:\n  <<: *base\n  y: 2\n")
    assert file.data["a"] == {"x": 1}
    assert file.data["b"] == {"x": 1, "y": 2}


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), trees, max_size=4))
def test_every_mapping_is_read_back_with_a_line_for_each_place(tmp_path_factory: Any, tree: dict[str, Any]) -> None:
    file = read(tmp_path_factory.getbasetemp(), yaml.safe_dump(tree))
    assert file.data == tree
    assert places(file.data) == len(file.lines)


def places(tree: Any) -> int:
    """Fields and items of a tree."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return sum(1 + places(value) for value in inner)


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_mapping_or_a_job_error(tmp_path_factory: Any, data: bytes) -> None:
    try:
        file = read(tmp_path_factory.getbasetemp(), data)
    except JobError as error:
        assert "job.yaml" in error.where
    else:
        assert isinstance(file.data, dict)


@given(st.text(alphabet="ab:{}[]&*!?|>-'\"\n ,#%@`~0123456789.", max_size=40))
def test_any_yaml_signs_give_a_mapping_or_a_job_error(tmp_path_factory: Any, text: str) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), text)
    except JobError as error:
        assert "job.yaml" in error.where


def test_yaml_values() -> None:
    assert yaml_value("64", "--set x") == 64
    assert yaml_value("[a, b]", "--set x") == ["a", "b"]
    assert yaml_value("", "--set x") is None
    with pytest.raises(JobError, match=r"--set x: '2024-99-99' is not a YAML value: this is no timestamp"):
        yaml_value("2024-99-99", "--set x")
    with pytest.raises(JobError, match="--set x"):
        yaml_value("&a [*a]", "--set x")


@given(st.text(max_size=30))
def test_yaml_values_fail_with_a_job_error_only(text: str) -> None:
    try:
        yaml_value(text, "--set x")
    except JobError as error:
        assert error.where.startswith("--set x")


def test_other_libraries_do_not_change_how_dates_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some replace PyYAML's shared constructor of dates when they are imported."""
    as_text = yaml.SafeLoader.yaml_constructors["tag:yaml.org,2002:str"]
    monkeypatch.setitem(yaml.SafeLoader.yaml_constructors, "tag:yaml.org,2002:timestamp", as_text)
    assert yaml.safe_load("2024-01-02") == "2024-01-02"
    assert yaml_value("2024-01-02", "--set x") == datetime.date(2024, 1, 2)
