"""Results that papers report: only beside runs of the same data and definition, and named for what they are."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from dialoom import registry
from dialoom.errors import JobError
from dialoom.metric import Definition
from dialoom.reader import open_dialogues
from dialoom.reported import beside, gold_digests, load_reported, packaged
from dialoom.schema import Schema, Service, Slot
from dialoom.systems import System, Value
from dialoom.tabular import latex, markdown
from support.shared import shared_path
from support.systems import JGA, system
from support.traces import frame, slot_values, turn_rows, write_run

AVERAGE = "sgd_average_service/joint_goal_accuracy"


def sgd_run(path: Path, *, reader: str = "sgd", leave_out: str = "") -> Path:
    """A run folder over one dialogue, with the schema of SGD's test split."""
    names = sorted(packaged().data_sets["sgd-test"].services - {leave_out})
    schema = Schema("s", {n: Service(n, slots=(Slot("x"),)) for n in names})
    rows = turn_rows("1_00000", [{"gold": [frame(names[0], {"x": "a"}, "Do")], "state": slot_values({})}])
    write_run(path, rows, schema=schema)
    (path / "job.yaml").write_text(yaml.safe_dump({"data": {"reader": reader}}))
    return path


def of(run: Path, figures: dict[str, float | None]) -> System:
    made = system("mine", figures)
    return System(made.label, run, made.method, made.cell, made.coverage, made.settings, made.figures)


def test_every_packaged_figure_is_a_measure_of_ours_and_a_fraction() -> None:
    known = packaged()
    for result in known.results:
        name, _, measure = result.figure.partition("/")
        definition = registry.find("metrics", name)
        assert isinstance(definition, Definition)
        assert measure in {m.name for m in definition.measures}
        assert 0 < result.value < 1
        assert result.source
        assert result.data in known.data_sets
    assert len({(r.data, r.method, r.model, r.figure) for r in known.results}) == len(known.results)


def test_beside_a_run_of_the_same_data_and_definition(tmp_path: Path) -> None:
    run = sgd_run(tmp_path / "run")
    (found,) = beside([of(run, {AVERAGE: 0.6, JGA: 0.5})], load_reported())
    assert found.data_set.title == "SGD, test split"
    table = found.table()
    assert [c.name for c in table.columns] == ["system", "model", "from", "sgd_average_service"]
    values = [row[3] for row in table.rows]
    assert values == sorted(values, reverse=True, key=lambda v: float(v or 0.0))
    assert ("ReacTOD", "Qwen3-32B", "reported: arXiv 2605.19077", 0.6409) in table.rows
    assert ("mine", None, "run here, 10 of 4,201 dialogues", 0.6) in table.rows
    said = " ".join(table.notes)
    assert "not run by us" in said
    assert "over part of it" in said
    assert "unconfirmed for sgd_average_service" in said
    assert "| ReacTOD | Qwen3-32B | reported: arXiv 2605.19077 | 64.09 |" in markdown(table)
    assert r"sgd\_average\_service" in latex(table)


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({}, {JGA: 0.5}),  # another definition
        ({}, {AVERAGE: None}),  # the definition is not defined here
        ({"reader": "chat"}, {AVERAGE: 0.5}),
        ({"leave_out": "Alarm_1"}, {AVERAGE: 0.5}),  # another split's services
    ],
)
def test_not_where_data_or_definition_differ(
    tmp_path: Path, changes: dict[str, str], figures: dict[str, float | None]
) -> None:
    run = sgd_run(tmp_path / "run", **changes)
    assert beside([of(run, figures)], load_reported()) == ()


def own_file(path: Path, **changes: Any) -> Path:
    record: dict[str, Any] = {
        "as_of": "2026-12-01",
        "data_sets": {"mine": {"title": "My logs", "dialogues": 3, "reader": "sgd"}},
        "results": [
            {"data": "mine", "method": "Theirs", "figure": JGA, "value": 0.7, "source": "a report", "sure": "stated"}
        ],
    }
    path.write_text(yaml.safe_dump(record | changes))
    return path


def test_results_of_ones_own(tmp_path: Path) -> None:
    run = sgd_run(tmp_path / "run", leave_out="Alarm_1")
    known = load_reported([own_file(tmp_path / "own.yaml")])
    (found,) = beside([of(run, {JGA: 0.5})], known)
    assert [row[0] for row in found.table().rows] == ["Theirs", "mine"]
    assert "as of 2026-12-01" in found.table().notes[0]
    assert found.records()["results"][0]["source"] == "a report"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"results": [{"data": "nowhere", "method": "m", "figure": JGA, "value": 1, "source": "s"}]}, "nowhere"),
        ({"results": [{"data": "mine", "method": "m", "figure": "jga", "value": 1, "source": "s"}]}, "pattern"),
        ({"results": [{"data": "mine", "method": "m", "figure": JGA, "value": float("nan"), "source": "s"}]}, "finite"),
        ({"as_of": "soon"}, "date"),
        ({"data_sets": {"mine": {"title": "My logs", "dialogues": 3, "gold": "!"}}}, "base64"),
        ({"data_sets": {"mine": {"title": "My logs", "dialogues": 3, "gold": "AAAA"}}}, "no multiple of 4"),
        ({"extra": 1}, "unknown field 'extra'"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    path = own_file(tmp_path / "own.yaml", **changes)
    with pytest.raises(JobError, match=f"(?i){what}") as error:
        load_reported([path])
    assert error.value.where.startswith(f"{path}:")


def test_gold_tells_splits_apart(tmp_path: Path) -> None:
    def run(name: str, value: str) -> Path:
        rows = turn_rows("d1", [{"gold": [frame("hotel", {"area": value})], "state": slot_values({})}], cell="a")
        rows += turn_rows("d1", [{"gold": [frame("hotel", {"area": value})], "state": slot_values({})}], cell="b")
        return write_run(tmp_path / name, rows)

    mine, other = run("mine", "north"), run("other", "south")
    digests = gold_digests(mine)
    assert len(digests) == 1
    assert digests.isdisjoint(gold_digests(other))
    gold = base64.b64encode(b"".join(digests)).decode()
    file = own_file(tmp_path / "own.yaml", data_sets={"mine": {"title": "Mine", "dialogues": 1, "gold": gold}})
    known = load_reported([file])
    assert len(beside([of(mine, {JGA: 0.5})], known)) == 1
    assert beside([of(other, {JGA: 0.5})], known) == ()


def test_a_run_of_more_dialogues_than_the_split_is_not_of_it(tmp_path: Path) -> None:
    run = sgd_run(tmp_path / "run", leave_out="Alarm_1")
    rows = [r for i in range(4) for r in turn_rows(f"d{i}", [{"gold": [], "state": slot_values({})}])]
    more = write_run(tmp_path / "more", rows)
    (more / "job.yaml").write_bytes((run / "job.yaml").read_bytes())
    known = load_reported([own_file(tmp_path / "own.yaml")])
    assert len(beside([of(run, {JGA: 0.5}), of(more, {JGA: 0.5})], known)[0].systems) == 1


def test_the_test_split_of_multiwoz_21_is_known_by_its_gold(tmp_path: Path) -> None:
    rows = []
    for i, dialogue in enumerate(open_dialogues("multiwoz", [shared_path("multiwoz", "mwz21", "test")])):
        if i % 50:
            continue
        turns = [
            {"turn": n, "gold": [frame(f.service, dict(f.slot_values)) for f in t.frames], "state": slot_values({})}
            for n, t in enumerate(dialogue.turns)  # type: ignore[union-attr]
            if t.frames is not None
        ]
        rows += turn_rows(dialogue.dialogue_id, turns)
    run = write_run(tmp_path / "run", rows)
    figures: dict[str, float | None] = {JGA: 0.4, "validator/trigger_rate": 0.1}
    (found,) = beside([of(run, figures)], load_reported())
    assert found.data_set.title == "MultiWOZ 2.1, test split"
    row = next(r for r in found.table().rows if r[:2] == ("ReacTOD", "Qwen3-8B"))
    assert row[3:] == (0.4734, 0.0926)
    changed = rows[3] | {"gold": [frame("hotel", {"hotel-area": "elsewhere"})]}
    other = write_run(tmp_path / "other", [*rows[:3], changed, *rows[4:]])
    assert beside([of(other, figures)], load_reported()) == ()


def test_a_number_that_is_no_fraction_stays_one(tmp_path: Path) -> None:
    run = sgd_run(tmp_path / "run")
    result = {"data": "mine", "method": "m", "figure": "effort/calls_mean", "value": 2.5, "source": "s"}
    known = load_reported([own_file(tmp_path / "own.yaml", results=[result])])
    mine = of(run, {})
    mine = System(mine.label, run, "m", "", mine.coverage, {}, {"effort/calls_mean": Value(3.0, "calls", False)})
    known = known.model_copy(update={"data_sets": {"mine": known.data_sets["mine"]}})
    table = beside([mine], known)[0].table()
    assert table.columns[3].kind == "number"
    assert [row[3] for row in table.rows] == [3.0, 2.5]
