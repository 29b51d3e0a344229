"""What a plan makes of a job's data: places that hold from any working directory, options checked at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.errors import JobError
from dialoom.job import load_job
from dialoom.reader import open_dialogues
from dialoom.runtime.plan import Plan, make_plan
from support.records import write_lines
from support.shared import ROOT

JOB = f"""\
name: data
data:
  reader: chat
  paths: logs/a.jsonl
  options:
    OPTION
schema: {{path: {ROOT / "schemas" / "sample.yaml"}}}
methods: ["support.tiny_method:PLUGIN"]
engines: {{main: {{use: scripted, answers: logs/a.jsonl}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    turns = [{"role": "user", "text": "hi"}]
    write_lines(tmp_path / "logs" / "a.jsonl", [{"id": i, "turns": turns, "text": "x"} for i in "abc"])
    (tmp_path / "logs" / "ids.txt").write_text("b\n")
    return tmp_path


def plan(folder: Path, option: str) -> Plan:
    (folder / "job.yaml").write_text(JOB.replace("OPTION", option))
    return make_plan(*load_job(folder / "job.yaml"))


@pytest.mark.parametrize("option", ["ids: logs/ids.txt", "ids: $LOGS/ids.txt", "ids: ../{}/logs/ids.txt"])
def test_a_relative_option_is_seen_from_the_job_file(
    folder: Path, option: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("LOGS", str(folder / "logs"))
    made = plan(folder, option.format(folder.name))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    data = made.options.data
    assert Path(data.options["ids"]).is_absolute()
    assert [d.dialogue_id for d in open_dialogues(data.reader, data.paths, data.options)] == ["b"]


def test_other_options_stay_as_they_are(folder: Path) -> None:
    data = plan(folder, "roles: {patient: user}").options.data
    assert data.options == {"roles": {"patient": "user"}}


@pytest.mark.parametrize(
    ("option", "where", "what"),
    [
        ("ids: logs/none.txt", "logs/none.txt", "cannot read the split list"),
        ("ids: $NO_SUCH_VARIABLE/a", "job.yaml:5: data.options", "names an environment variable that is not set"),
        ("idz: a", "job.yaml:5: data.options", "Did you mean 'ids'"),
        ("ids: [a]", "job.yaml:5: data.options", "option 'ids' of reader 'chat'"),
    ],
)
def test_a_wrong_option_is_an_error_before_anything_starts(folder: Path, option: str, where: str, what: str) -> None:
    with pytest.raises(JobError) as caught:
        plan(folder, option)
    assert caught.value.where == f"{folder}/{where}"
    assert what in str(caught.value)
