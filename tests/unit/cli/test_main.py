"""The command line: mistakes are two lines, untrusted text is harmless, nothing heavy is imported for help."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dialoom.runtime import parts
from dialoom.runtime.folder import RunFolder
from dialoom.traces.compact import compact
from support.command import Command, command
from support.jobs import SCRIPTED, TINY, write_job
from support.runs import finished_folder


@pytest.fixture
def dialoom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


def test_help_names_every_command_and_each_has_help_of_its_own(dialoom: Command) -> None:
    done = dialoom("--help")
    assert done.status == 0
    names = re.findall(r"^│ (\w+) ", done.out.split("Commands")[1], re.MULTILINE)
    assert {"run", "validate", "score", "show", "log", "schema", "doctor"} <= set(names)
    for name in names:
        assert dialoom(name, "--help").status == 0


def test_help_imports_nothing_heavy() -> None:
    heavy = ["ray", "mlflow", "polars", "pyarrow", "torch", "openai", "vllm", "pandas", "numpy", "duckdb", "sqlalchemy"]
    code = f"import sys, dialoom.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def assert_refused(done: Any, *parts: str) -> None:
    """Two lines at most on the error stream, no traceback, nothing on the other."""
    lines = done.err.splitlines()
    assert done.status == 2
    assert 1 <= len(lines) <= 2, done.err
    assert lines[0].startswith("error: ")
    assert len(lines) == 1 or lines[1].startswith("       ")
    assert "Traceback" not in done.err
    assert done.out == ""
    for part in parts:
        assert part in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nope.yaml"], "nope.yaml: no such file"),
        (["validate", "nope.yaml"], "YAML files in"),
        (["validate", "."], "cannot be read: Is a directory"),
        (["run", "job.yaml", "--set", "data.limt=3"], "--set data.limt: unknown field 'limt'. Did you mean"),
        (["run", "job.yaml", "--set", "data.limt=3"], "\n       Did you mean 'limit'?"),
        (["run", "job.yaml", "--set", "data.limit"], "--set takes FIELD=VALUE, found 'data.limit'"),
        (["run", "job.yaml", "--set", "seed=2024-99-99"], "--set seed: '2024-99-99' is not a YAML value"),
        (["run", "job.yaml", "--set", "seed=[1"], "--set seed: '[1' is not a YAML value"),
        (["run", "job.yaml", "--log-format", "jsn"], "--log-format jsn: there is no such format"),
        (["run", "job.yaml", "--reuse", "nope's [x]"], "--set run.reuse.0: 'nope's [x]' holds no recorded calls"),
        (["run", "job.yaml", "--replay", "nope"], "there is no run here"),
        (["run", "job.yaml", "--max-cost", "5"], "limits.cost_usd: engine 'main' has no price"),
        (["run", "job.yaml", "--max-cost", "0"], "limits.cost_usd: found 0.0: input should be greater than 0"),
        (["show", "nope"], "nope: there is no run here"),
        (["show", "runs/smal"], "Did you mean 'runs/small'?"),
        (["show", "runs/small", "dialogue"], "no dialogue 'dialogue' in this run"),
        (["show", "runs/small", "--outcome", "acepted"], "Did you mean 'accepted'?"),
        (["score"], "score takes either a RUN or --predictions"),
        (
            ["score", "runs/small", "--json", "no/such/folder/x.json"],
            "no/such/folder/x.json: No such file or directory",
        ),
        (["score", "runs/small", "-d", "joint_gaol"], "joint_goal"),
        (["log", "nope"], "there is no run here"),
        (["calls", "stats", "nope"], "there is no run here"),
        (["schema", "check", "nope.json"], "there is no such schema file"),
        (["schema", "check", "schema.yaml", "--data", "data.jsonl"], "--data needs --reader"),
        (["schema", "show", "data.jsonl"], "data.jsonl"),
    ],
)
def test_mistakes_are_two_lines(
    dialoom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    finished_folder(tmp_path)
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = dialoom(*words)
    text = message.split("Did you mean")[0] if "\n" not in message and ". Did you" in message else message
    assert_refused(done, text.rstrip(". "))


def test_an_error_in_a_job_file_has_its_line(dialoom: Command, tmp_path: Path) -> None:
    path = write_job(tmp_path, methods=[TINY | {"cals": 3}])
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "cals" in text)
    done = dialoom("validate", path)
    assert_refused(done, f"error: {path}:{line}: methods.0.cals: unknown field 'cals'\n       Did you mean 'calls'?")


def test_terminal_escapes_in_a_job_file_are_shown_not_obeyed(dialoom: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text('"[red]\\e[2J\\a\\u202e": 1\n')
    done = dialoom("validate", path)
    assert_refused(done, r"unknown field '[red]\x1b[2J\x07\u202e'")
    assert harmless(done.err)


@pytest.mark.parametrize("where", ["create", "prompts"])
def test_a_plugin_that_fails_is_an_error_of_the_job(
    dialoom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    from support.tiny_method import TinyPlugin

    def broken(*_: object) -> None:
        raise KeyError("broken on purpose")

    monkeypatch.setattr(TinyPlugin, where, broken)
    done = dialoom("validate", write_job(tmp_path))
    assert_refused(done, "methods.0: KeyError: 'broken on purpose'\n       The plug-in itself fails.")


def test_a_fault_of_ours_leaves_its_traceback_in_a_file(
    dialoom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("broken \ud800 on purpose")

    monkeypatch.setattr("dialoom.cli.runs.planned", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = dialoom("validate", "x")
    assert done.status == 70
    first, second = done.err.splitlines()
    assert first == r"error: unexpected ZeroDivisionError: 'broken \ud800 on purpose'"
    assert "Traceback" in Path(second.split("Details: ")[1]).read_text()


def test_validate_says_what_would_run(dialoom: Command, tmp_path: Path) -> None:
    done = dialoom("validate", write_job(tmp_path, engines={"main": SCRIPTED | {"replicas": 2}}))
    assert done.status == 0
    assert "tiny (support.tiny_method:PLUGIN; main=main)" in done.out
    assert "main: scripted scripted, 2 × 256 calls in flight" in done.out
    assert "The job is valid; nothing was started." in done.out
    assert not (tmp_path / "runs").exists()


def test_a_method_beside_the_job_file_is_found(
    dialoom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_method_beside.py").write_text("from support.tiny_method import PLUGIN\n")
    (tmp_path / "orjson.py").write_text("raise RuntimeError('hides an installed module')\n")
    monkeypatch.chdir("/")
    done = dialoom("validate", write_job(tmp_path, methods=["own_method_beside:PLUGIN"]))
    assert done.status == 0, done.err


NASTY = "[red]x[/red] :smile: \x1b[2J\x1b]0;title\x07 \x9b31m \u202etxet a\0b\r\n\u2028 \\ud800"


def harmless(printed: str) -> bool:
    """Whether nothing in it moves a cursor, turns text around or breaks a line besides newlines."""
    return re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", printed) is None


@pytest.fixture
def nasty_run(tmp_path: Path) -> RunFolder:
    """A run whose every text is hostile."""
    folder = finished_folder(tmp_path / "[bold]run")
    key = {"dialogue_id": NASTY, "method": "m[red]", "cell": "c[red]", "trial": 1}
    value = {"service": "s", "slot": NASTY, "value": NASTY}
    gold = {
        "service": "s",
        "active_intent": "find",
        "requested_slots": [],
        "slot_values": [{"slot": "t", "values": [NASTY]}],
    }
    wrong = {
        "service": "s",
        "active_intent": None,
        "requested_slots": None,
        "slot_values": [{"slot": NASTY, "values": [NASTY * 2]}],
    }
    rows: dict[str, list[dict[str, Any]]] = {
        "dialogues": [{**key, "outcome": "infrastructure", "error": NASTY, "n_calls": 1}],
        "turns": [
            {**key, "turn": i, "user_turn": i, "user_text": NASTY, "system_text": NASTY, "outcome": "fallback",
             "state": [value], "delta": [value], "gold": [g]} for i, g in enumerate([gold, wrong])
        ],
        "calls": [
            {**key, "turn": 0, "call": 0, "digest": "x", "text": NASTY, "action": NASTY, "observation": NASTY,
             "rules": ["R[red]"], "message_ids": ["a"], "step": NASTY},
            {**key, "turn": 1, "call": 0, "digest": "", "error": NASTY, "message_ids": []},
        ],
        "messages": [{"message_id": "a", "role": "user", "content": NASTY}],
    }  # fmt: skip
    folder.put("parts/00001-w-000000.part", parts.encode(parts.batches(rows)))
    compact(folder)
    return folder


@pytest.mark.parametrize(
    "words", [["show"], ["show", NASTY], ["show", NASTY, "--prompts"], ["calls", "list"], ["calls", "stats"], ["score"]]
)
def test_hostile_text_is_shown_and_not_obeyed(dialoom: Command, nasty_run: RunFolder, words: list[str]) -> None:
    group = words[:2] if words[0] == "calls" else words[:1]
    done = dialoom(*group, nasty_run.path, *words[len(group) :])
    assert done.status == 0, done.err
    assert harmless(done.out)
    assert harmless(done.err)
    if words[-1] != "score" and words[-1] != "stats":
        assert "[red]x[/red] :smile: \\x1b[2J\\x1b]0;title\\x07 \\x9b31m \\u202etx" in done.out


def test_one_dialogue_turn_by_turn(dialoom: Command, nasty_run: RunFolder) -> None:
    done = dialoom("show", nasty_run.path, NASTY, "--prompts")
    assert "user 1" in done.out
    assert "R[red]" in done.out
    assert "missing (gold" in done.out
    assert "(not in gold)" in done.out
    assert "fallback" in done.out


def test_hostile_words_on_the_command_line(dialoom: Command, nasty_run: RunFolder) -> None:
    done = dialoom("show", nasty_run.path, "[red]\x1b[2J")
    assert_refused(done, r"no dialogue '[red]\x1b[2J' in this run")
    assert harmless(done.err)


def test_logging_without_the_password_is_refused(dialoom: Command, tmp_path: Path) -> None:
    folder = finished_folder(tmp_path, tracking={"uri": "https://user:secret@mlflow.example"})
    done = dialoom("log", folder)
    assert_refused(done, "https://***@mlflow.example: the run folder holds the tracking URI without its password")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    code = "import sys; from dialoom.cli.main import main; sys.argv = ['dialoom', '--help']; main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait(timeout=60)
