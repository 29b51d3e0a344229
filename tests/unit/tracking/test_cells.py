"""Child runs of a sweep on a real SQLite store: one a cell whatever was cut short, and what each says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dialoom.run import RUN_FILE
from dialoom.runtime.folder import RunFolder
from dialoom.runtime.plan import digest_of
from dialoom.scoring import Coverage, GroupScores, ScoreReport
from dialoom.tracking import cells
from dialoom.tracking.tracker import RUN_IDS, Tracker
from support.jobs import SCRIPTED, TINY
from support.runs import finished_folder

pytestmark = pytest.mark.timeout(300)  # a new store is seconds of work, and more on a busy machine


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store; making its tables takes seconds, so the tests of this file share it."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


def sweep_folder(path: Path) -> RunFolder:
    """The folder of a sweep over three models, finished and scored."""
    engines = {"main": SCRIPTED | {"model": "a"}, "unused": SCRIPTED | {"model": "z"}}
    methods = [TINY, TINY | {"name": "other"}]
    sweep = {"grid": {"engines.main.model": ["a", "b", "c"]}}
    folder = finished_folder(path, methods=methods, engines=engines, roles={"main": "main"}, sweep=sweep)
    groups = tuple(GroupScores("tiny", f"model={m}", Coverage(1, 1, 1, {"accepted": 1}), {}) for m in "abc")
    folder.put_json("scores.json", ScoreReport(groups).to_dict())
    return folder


def children(store: str, parent: str) -> dict[str, Any]:
    """Name to child run; every name once."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store)
    found = client.search_runs([client.get_run(parent).info.experiment_id])
    named = [(r.info.run_name, r) for r in found if r.data.tags.get("mlflow.parentRunId") == parent]
    assert len(named) == len(dict(named)), "a child stands there twice"
    return dict(named)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("saved", [True, False])
def test_a_driver_that_dies_among_its_cells_leaves_no_child_twice(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, saved: bool
) -> None:
    """It dies while it logs the second child; the ids it had saved may be lost too."""
    folder = sweep_folder(tmp_path)
    original = cells._log_group

    def dies(client: Any, run_id: str, group: GroupScores, *more: Any) -> None:
        if group.cell == "model=b":
            raise Killed
        original(client, run_id, group, *more)

    monkeypatch.setattr(cells, "_log_group", dies)
    with pytest.raises(Killed):
        Tracker(folder, store, "killed").finish()
    known = folder.read_json(RUN_IDS) or {}
    assert {k.partition("#")[2] for k in known} == {"", "tiny.model=a", "tiny.model=b"}
    if not saved:
        folder.put_json(RUN_IDS, {store: known[store]})
    monkeypatch.undo()
    parent = Tracker(folder, store, "killed").finish()
    made = children(store, parent)
    assert set(made) == {"tiny.model=a", "tiny.model=b", "tiny.model=c"}
    assert {r.info.status for r in made.values()} == {"FINISHED"}
    assert made["tiny.model=b"].info.run_id == known[f"{store}#tiny.model=b"]


def test_a_sweep_and_its_cells_say_what_they_were_made_of(tmp_path: Path, store: str) -> None:
    from mlflow.tracking import MlflowClient

    folder = sweep_folder(tmp_path)
    record = folder.read_json(RUN_FILE) or {}
    parent = Tracker(folder, store, "told").finish()
    client = MlflowClient(store)
    tags = client.get_run(parent).data.tags
    assert tags["dialoom.digest"] == record["digest"]
    assert tags["engine.main.model"] == "a, b, c"
    assert tags["engine.main.revision"] and "," not in tags["engine.main.revision"]
    assert tags["prompt.tiny/system.txt"]
    prompts = {a.path for a in client.list_artifacts(parent, "prompts/model=b/tiny")}
    assert prompts == {"prompts/model=b/tiny/system.txt"}
    for model in "abc":
        identity = record["identity"]["cells"][f"model={model}"]
        own = children(store, parent)[f"tiny.model={model}"].data.tags
        assert own["dialoom.digest"] == digest_of(identity)
        assert own["engine.main.model"] == model
        assert own["engine.main.revision"] == identity["engines"]["main"]["revision"]
        assert own["prompt.tiny/system.txt"] == identity["prompts"]["tiny/system.txt"]
        assert own["data.0"] == "data.jsonl abc"
        assert own["version.dialoom"]
        assert not {"engine.unused.model", "prompt.other/system.txt"} & set(own), "they are not this method's"
