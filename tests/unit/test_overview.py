"""The view of a sweep: order, columns, names of metrics, systems that are one and the same."""

from __future__ import annotations

from typing import Any

import pytest

from dialoom.errors import JobError
from dialoom.overview import MOST_FIELDS, check_metric, differing_fields, figure_name, overview, short_names
from dialoom.systems import System
from dialoom.tabular import latex, markdown
from support.systems import JGA, system, with_interval


def grid() -> list[System]:
    settings = [("text", "True"), ("text", "False"), ("json", "True"), ("json", "False")]
    scores = [0.3, 0.5, None, 0.4]
    return [
        system(
            f"protocol={p},validator={v}",
            {JGA: score, "slot_f1/f1": 0.9 - i / 10, "tokens": 100.0 * (i + 1), "latency_s": 1.0},
            settings={"method.settings.protocol": p, "method.settings.validator": v, "seed": 0, "versions.ray": str(i)},
        )
        for i, ((p, v), score) in enumerate(zip(settings, scores, strict=True))
    ]


def labels(systems: list[System], sort: str | None = None) -> list[str]:
    return [s.label.replace("protocol=", "").replace("validator=", "") for s in overview(systems, sort).systems]


def test_scores_fall_costs_rise_and_what_is_unknown_comes_last() -> None:
    assert labels(grid()) == ["text,False", "json,False", "text,True", "json,True"]
    assert labels(grid(), "slot_f1") == ["text,True", "text,False", "json,True", "json,False"]
    assert labels(list(reversed(grid())), "tokens") == ["text,True", "text,False", "json,True", "json,False"]


def test_equal_scores_stand_cheapest_first() -> None:
    dear, cheap = system("dear", {JGA: 0.5, "tokens": 9.0}), system("cheap", {JGA: 0.5, "tokens": 1.0})
    assert [s.label for s in overview([dear, cheap]).systems] == ["cheap", "dear"]


def test_only_settings_that_differ_are_columns_and_a_cell_named_after_them_is_not() -> None:
    table = overview(grid()).table()
    names = [c.name for c in table.columns]
    assert names == [
        "#",
        "protocol",
        "validator",
        "joint_goal %",
        "tokens",
        "latency_s",
        "slot_f1 %",
        "front",
        "scored",
    ]
    assert table.rows[0][:4] == (1, "text", "False", 0.5)
    assert [row[-2] for row in table.rows] == ["both", "", "cost", ""]


def test_the_metric_sorted_by_has_its_interval_and_leads() -> None:
    one, two = grid()[:2]
    figures = {**one.figures, JGA: with_interval(0.3, 0.25, 0.355)}
    sure = System(one.label, one.run, one.method, one.cell, one.coverage, one.settings, figures)
    table = overview([sure, two]).table()
    at = [c.name for c in table.columns].index("95 %")
    assert table.columns[at - 1].name == "joint_goal %"
    assert [row[at] for row in table.rows] == [None, "25.00–35.50"]


def test_many_settings_share_one_column_that_names_the_odd_ones() -> None:
    usual = {f"method.settings.s{i}": "on" for i in range(MOST_FIELDS + 2)}
    systems = [system("base", {JGA: 0.5}, settings=usual)]
    for i in range(MOST_FIELDS + 2):
        systems.append(system(f"no-s{i}", {JGA: 0.4}, settings={**usual, f"method.settings.s{i}": "off"}))
    table = overview(systems).table()
    assert [c.name for c in table.columns][:3] == ["#", "cell", "differs in"]
    assert {row[1]: row[2] for row in table.rows}["base"] == ""
    assert {row[1]: row[2] for row in table.rows}["no-s3"] == "s3=off"


def test_a_cell_that_changes_nothing_for_a_method_is_shown_once() -> None:
    same: dict[str, Any] = {"method.settings.k": 1}
    systems = [
        system(f"cell{i}", {JGA: 0.5, "tokens": 5.0}, settings={**same, "method.cell": f"cell{i}"}) for i in (0, 1)
    ]
    systems.append(
        system("other", {JGA: 0.2, "tokens": 5.0}, settings={"method.settings.k": 2, "method.cell": "other"})
    )
    shown = overview(systems)
    assert [s.label for s in shown.systems] == ["cell0", "other"]
    assert dict(shown.same) == {"cell0": ("cell1",)}
    assert "cell0 stands for 2 cells of equal settings." in shown.table().notes


def test_cells_that_differ_in_an_engine_of_their_roles_alone_are_not_of_equal_settings() -> None:
    def cell(name: str, **settings: Any) -> System:
        shared: dict[str, Any] = {"method.roles.main": "m", "engines.m.model": "x", "method.cell": name}
        return system(name, {JGA: 0.5}, settings=shared | settings)

    systems = [
        cell("one"),
        cell("revised", **{"engines.m.revision": "2"}),
        cell("elsewhere", **{"engines.m.base_url": "http://b/v1"}),
        cell("other engine", **{"engines.n.revision": "2"}),
    ]
    assert dict(overview(systems).same) == {"one": ("other engine",)}


def test_names_of_metrics() -> None:
    systems = [system("a", {JGA: 0.5, "slot_f1/f1": 0.4, "slot_f1/recall": 0.3, "delta/f1": 0.1, "latency_s": 1.0})]
    assert figure_name("joint_goal", systems) == JGA
    assert figure_name("JGA", systems) == JGA
    assert figure_name("slot_f1", systems) == "slot_f1/f1"
    assert figure_name("slot_f1/recall", systems) == figure_name("recall", systems) == "slot_f1/recall"
    assert figure_name("latency", systems) == "latency_s"
    with pytest.raises(JobError, match="several metrics are called 'f1'") as several:
        figure_name("f1", systems)
    assert "delta/f1" in several.value.hint
    with pytest.raises(JobError, match="no system has a metric 'slot_f'") as unknown:
        figure_name("slot_f", systems)
    assert "Did you mean 'slot_f1'?" in unknown.value.hint
    with pytest.raises(JobError, match="no system has a metric 'cost'"):
        figure_name("cost", systems)


@pytest.mark.parametrize("name", ["JGA", "joint_goal", "slot_f1/f1", "f1", "latency", "cost_usd"])
def test_a_metric_that_some_definition_has_passes_the_first_look(name: str) -> None:
    check_metric(name)


def test_a_metric_that_none_has_is_refused_before_scoring() -> None:
    with pytest.raises(JobError, match="no system has a metric 'slot_f'") as unknown:
        check_metric("slot_f")
    assert "Did you mean 'slot_f1'?" in unknown.value.hint
    check_metric("tokens", ["joint_goal"])
    with pytest.raises(JobError, match="no system has a metric 'slot_f1'"):
        check_metric("slot_f1", ["joint_goal"])


def test_fields_with_the_same_last_name_keep_their_whole_one() -> None:
    settings = [{"method.settings.a.size": 1, "limits.size": 1}, {"method.settings.a.size": 2, "limits.size": 2}]
    found = differing_fields([system(str(i), {}, settings=s) for i, s in enumerate(settings)])
    assert found == {"method.settings.a.size": ("1", "2"), "limits.size": ("1", "2")}


def test_a_setting_of_one_method_alone_is_no_difference() -> None:
    settings: list[dict[str, Any]] = [
        {"method.settings.k_max": 2},
        {"method.settings.k_max": 4},
        {"method.settings.other": 1},
    ]
    found = differing_fields([system(str(i), {}, settings=s) for i, s in enumerate(settings)])
    assert found == {"k_max": ("2", "4", None)}


def test_the_model_of_a_role_is_a_field() -> None:
    def of(model: str) -> dict[str, Any]:
        return {"method.roles.main": "e", "engines.e.model": model, "engines.e.revision": f"r-{model}"}

    found = differing_fields([system(m, {}, settings=of(m)) for m in ("small", "large")])
    assert found == {"model": ("small", "large")}


def test_short_names_are_distinct_and_safe() -> None:
    assert short_names(grid())[:2] == ("text, validator", "text, no validator")
    odd = [system("a\x1b[31m\u202eb", {}), system("c", {})]
    assert short_names(odd) == ("a\\x1b[31m\\u202eb", "c")


def test_markdown_and_latex() -> None:
    shown = overview(grid()).table()
    assert "| 1 | text | False | 50.00 |" in markdown(shown)
    assert r"joint\_goal \%" in latex(shown)


def test_records_hold_every_figure() -> None:
    record = overview(grid(), "tokens").records()[0]
    assert record["fields"] == {"protocol": "text", "validator": "True"}
    assert record["figures"]["slot_f1/f1"] == {
        "value": 0.9, "interval": None, "unit": "fraction", "higher_is_better": True,
    }  # fmt: skip
