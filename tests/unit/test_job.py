"""Job files: every mistake is named with file, line, field, what was found and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dialoom import registry
from dialoom.errors import JobError
from dialoom.job import EngineEntry, Job, MethodEntry, load_job, plugin_settings

GOOD = """\
name: demo
data:
  reader: chat
  paths: logs.jsonl
schema: {path: schema.yaml}
methods:
  - tracker
engines:
  main: {use: scripted, answers: a.jsonl}
"""


def load(folder: Path, text: str, overrides: dict[str, Any] | None = None) -> Job:
    (folder / "job.yaml").write_text(text)
    return load_job(folder / "job.yaml", overrides)[0]


def refused(folder: Path, text: str, overrides: dict[str, Any] | None = None) -> JobError:
    with pytest.raises(JobError) as caught:
        load(folder, text, overrides)
    return caught.value


def test_a_short_job_is_filled_in(tmp_path: Path) -> None:
    job = load(tmp_path, GOOD)
    assert job.data.paths == ("logs.jsonl",)
    assert job.methods == (MethodEntry(use="tracker"),)
    assert job.engines["main"].settings == {"answers": "a.jsonl"}
    assert (job.trials, job.seed, job.run.root, job.tracking.enabled) == (1, 0, "runs", True)


# Wrong text, in place of which part of GOOD ("" adds it at the end); then line and field, and what the message says.
WRONG = {
    "unknown field": ("", "trails: 2", "10: trails", "unknown field 'trails'. Did you mean 'trials'? Allowed: name, "),
    "unknown field below": ("", "run: {wrkers: 2}", "10: run.wrkers", "Did you mean 'workers'? Allowed: root, "),
    "unknown field of data": ("  paths:", "  path:", "4: data.path", "Did you mean 'paths'? Allowed: reader, paths"),
    "unknown and far from all": ("", "qqq: 2", "10: qqq", "unknown field 'qqq'. Allowed: name, data, schema"),
    "missing": ("name: demo\n", "", "1: name", "required and missing"),
    "missing below": ("  reader: chat\n", "", "2: data.reader", "required and missing"),
    "missing in a list": ("  - tracker", "  - {name: x}", "7: methods.0.use", "required and missing"),
    "bad name": ("demo", "a/b", "1: name", "found 'a/b': string should match pattern"),
    "name is a number": ("demo", "17", "1: name", "found 17: input should be a valid string"),
    "name is empty": ("demo", "''", "1: name", "found '': string should match"),
    "bad engine name": ("main:", "'ma in':", "9: engines.ma in", "found 'ma in': string should match"),
    "paths are a number": ("logs.jsonl", "3", "4: data.paths", "found 3: input should be a list"),
    "a path is a number": ("logs.jsonl", "[a, 3]", "4: data.paths.1", "found 3: input should be a valid string"),
    "no paths": ("logs.jsonl", "[]", "4: data.paths", "the list needs at least 1"),
    "limit too small": (
        "logs.jsonl",
        "x\n  limit: 0",
        "5: data.limit",
        "found 0: input should be greater",
    ),
    "limit too large": (
        "logs.jsonl",
        f"x\n  limit: {10**30}",
        "5: data.limit",
        "equal to 9007199254740992",
    ),
    "no methods": ("\n  - tracker", " []", "6: methods", "found []: the list needs at least 1"),
    "methods are a mapping": ("\n  - tracker", " {use: tracker}", "6: methods", "input should be a list"),
    "method is a number": ("- tracker", "- 3", "7: methods.0", "found 3: input should be a mapping of fields"),
    "no engines": (
        "\n  main: {use: scripted, answers: a.jsonl}",
        " {}",
        "8: engines",
        "found {}: dictionary",
    ),
    "engine is a text": ("{use: scripted, answers: a.jsonl}", "vllm", "9: engines.main", "mapping of fields"),
    "data is a text": (
        "\n  reader: chat\n  paths: logs.jsonl",
        " chat",
        "2: data",
        "found 'chat': input should be",
    ),
    "trials": ("", "trials: 1.5", "10: trials", "found 1.5: input should be a valid integer"),
    "seed": ("", "seed: -1", "10: seed", "found -1: input should be greater than or equal to 0"),
    "endless seed": ("", f"seed: 0x{'f' * 5000}", "10: seed", "found a very long number"),
    "roles are a list": ("", "roles: [main]", "10: roles", "found ['main']: input should be a mapping of fields"),
    "empty section": ("", "run:", "10: run", "found None: input should be a mapping of fields"),
    "not a number": ("", "run: {backoff_s: .nan}", "10: run.backoff_s", "found nan"),
    "key is a number": ("", "1: 2", "10: 1", "keys should be strings"),
    "terminal escapes": ("demo", '"\\e[2J\\a"', "1: name", r"found '\x1b[2J\x07'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_mistake_is_placed_and_explained(name: str, tmp_path: Path) -> None:
    old, new, place, message = WRONG[name]
    assert old in GOOD
    error = refused(tmp_path, GOOD.replace(old, new, 1) if old else GOOD + new)
    assert str(error).startswith(f"{tmp_path}/job.yaml:{place}: ")
    assert message in str(error)
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)


def test_unknown_fields_go_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    error = refused(tmp_path, "nmae: demo\nmethods: 3\n")
    assert "unknown field 'nmae'" in error.what
    assert error.hint.endswith("(5 more problems.)")


def test_overrides(tmp_path: Path) -> None:
    job = load(tmp_path, GOOD + "run:\n", {"data.limit": 3, "run.workers": 2, "limits.unit_calls": 5, "name": "x"})
    assert (job.data.limit, job.run.workers, job.limits.unit_calls, job.name) == (3, 2, 5, "x")


def test_a_wrong_override_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD, {"data.limit": "abc"})
    assert str(error).startswith("--set data.limit: found 'abc': input should be a valid integer")
    error = refused(tmp_path, GOOD, {"run.wrkers": 1})
    assert str(error).startswith("--set run.wrkers: unknown field 'wrkers'. Did you mean 'workers'?")
    error = refused(tmp_path, GOOD, {"name.first": 1})
    assert str(error) == "--set name.first: does not name a field. 'name' holds a value, not fields."


def test_settings_of_plugins_are_checked_at_their_line(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD.replace("answers: a.jsonl", "answers: a.jsonl, latnecy_s: 1"))
    job, file = load_job(tmp_path / "job.yaml")
    with pytest.raises(JobError, match=r"job\.yaml:9: engines\.main\.latnecy_s: unknown field .* mean 'latency_s'\?"):
        plugin_settings("engines", job.engines["main"], file, ("engines", "main"))


def test_a_wrong_choice_gets_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD.replace("answers: a.jsonl", "answers: a.jsonl, fail_kind: engine_dwn"))
    job, file = load_job(tmp_path / "job.yaml")
    with pytest.raises(JobError) as caught:
        plugin_settings("engines", job.engines["main"], file, ("engines", "main"))
    assert caught.value.where == f"{tmp_path}/job.yaml:9: engines.main.fail_kind"
    assert caught.value.what == "found 'engine_dwn'"
    assert caught.value.hint.startswith("Did you mean 'engine_down'? Allowed: engine_down, engine_busy, ")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("scriptd", "no engine is named 'scriptd'. Did you mean 'scripted'? Allowed: "),
        ("../scripted", "no engine is named '../scripted'"),
        ("_script", "no engine is named '_script'"),
        ("no.such.module:X", "cannot import 'no.such.module:X': No module named 'no'"),
        ("support.tiny_method:NOPE", "has no attribute 'NOPE'"),
        ("", "no engine is named ''"),
        ("a\0b:c", "cannot import"),
        (":", "cannot import"),
        ("..:x", "cannot import"),
        ("support.tiny_method:answer", "is no engine"),
    ],
)
def test_plugins_that_are_not_there(use: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)
    _, file = load_job(tmp_path / "job.yaml")
    with pytest.raises(JobError) as caught:
        plugin_settings("engines", EngineEntry(use=use), file, ("engines", "main"))
    assert caught.value.where == f"{tmp_path}/job.yaml:9: engines.main.use"
    assert message in str(caught.value).replace("\\x00", "\0")


def test_a_plugin_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise KeyError('broken on purpose')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(JobError, match="broken on purpose"):
        registry.find("engines", "broken_plugin:PLUGIN")


names = st.sampled_from([*Job.model_fields, "schema", "use", "reader", "paths", "options", "limit", "path", "x"])
keys = names | st.text(max_size=6) | st.integers() | st.none()
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
)


@given(st.dictionaries(keys, trees, max_size=12))
def test_any_tree_is_a_job_or_a_job_error(tmp_path_factory: Any, tree: dict[Any, Any]) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        job = load(folder, yaml.safe_dump(tree))
    except JobError as error:
        assert re.match(rf"{re.escape(str(folder))}/job\.yaml:\d+", error.where)
    else:
        assert job.methods


good = {
    "name": "demo",
    "data": {"reader": "chat", "paths": ["a"]},
    "schema": {"path": "s"},
    "methods": [{"use": "tracker"}],
    "engines": {"main": {"use": "scripted"}},
}


@given(st.sampled_from([*good, "roles", "trials", "seed", "scores", "limits", "run", "tracking"]), trees)
def test_a_good_job_with_one_field_replaced(tmp_path_factory: Any, field: str, value: Any) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        load(folder, yaml.safe_dump(good | {field: value}))
    except JobError as error:
        assert field in error.where
