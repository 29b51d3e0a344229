"""Plans: what is in the digest and what is not, and every slip that is found before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import DialoomError, JobError, SchemaError
from dialoom.runtime.plan import EngineSpec, Plan, differences, flat
from dialoom.unit import UnitKey
from support.jobs import SCHEMA, SCRIPTED, TINY, chat, plan_of, small_plan, write_data, write_job


def changed_schema(folder: Path) -> None:
    service = SCHEMA["services"][0] | {"description": "Another service."}  # type: ignore[operator]
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA | {"services": [service]}))


# What a job may change, and the fields of the identity that differ then.
DECIDES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "method settings": ({"methods": [TINY | {"calls": 3}]}, {"methods.tiny.settings.calls"}),
    "temperature": ({"methods": [TINY | {"temperature": 0.5}]}, {"methods.tiny.settings.temperature"}),
    "another method": ({"methods": [TINY, TINY | {"name": "two"}]}, {"methods.two", "prompts.two/system.txt"}),
    "model": ({"engines": {"main": SCRIPTED | {"model": "x"}}}, {"engines.main.model"}),
    "rule": (
        {"engines": {"main": SCRIPTED | {"rule": "support.rules:echo"}}},
        {"engines.main.addressed", "engines.main.flags.rule", "engines.main.revision"},
    ),
    "seed": ({"seed": 7}, {"seed"}),
    "trials": ({"trials": 2}, {"trials"}),
    "limit of a unit": ({"limits": {"unit_calls": 9}}, {"limits.unit_calls"}),
}
DECIDES_NOT: dict[str, dict[str, Any]] = {
    "workers": {"run": {"workers": 3}},
    "commit": {"run": {"commit_s": 1.0}},
    "attempts": {"run": {"max_attempts": 2, "backoff_s": 3.0}},
    "tracking": {"tracking": {"enabled": True, "uri": "http://x", "experiment": "y"}},
    "concurrency": {"engines": {"main": SCRIPTED | {"concurrency": 7}}},
    "latency": {"engines": {"main": SCRIPTED | {"latency_s": 0.5}}},
    "replicas and place": {"engines": {"main": SCRIPTED | {"replicas": 2, "in_actor": True}}},
    "scores": {"scores": ["joint_goal"]},
    "data": {"data": {"reader": "chat", "paths": ["data.jsonl"], "limit": 1}},
    "limits of the job": {"limits": {"tokens": 5, "wall_s": 60}},
    "written out": {"roles": {"main": "main"}},
    "name": {"name": "other"},
}


@pytest.fixture
def base(tmp_path: Path) -> Plan:
    return small_plan(tmp_path)


@pytest.mark.parametrize("name", DECIDES)
def test_what_decides_results_is_in_the_digest_and_named(name: str, base: Plan, tmp_path: Path) -> None:
    fields, expected = DECIDES[name]
    other = small_plan(tmp_path, **fields)
    assert other.digest != base.digest
    named = {d.split(": ")[0] for d in differences(base.identity, other.identity)}
    for field in expected:
        assert any(n == field or n.startswith(f"{field}.") for n in named)
    for n in named:
        assert any(n == field or n.startswith(f"{field}.") for field in expected)


def test_the_schema_is_in_the_digest(base: Plan, tmp_path: Path) -> None:
    changed_schema(tmp_path)
    other = plan_of(tmp_path / "job.yaml")
    assert [d.split(":")[0] for d in differences(base.identity, other.identity)] == ["schema"]


def test_prompts_are_in_the_digest(base: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.tiny_method import TinyPlugin

    monkeypatch.setattr(TinyPlugin, "prompts", lambda self, config: {"system.txt": "You answer well."})
    other = plan_of(tmp_path / "job.yaml")
    assert [d.split(":")[0] for d in differences(base.identity, other.identity)] == ["prompts.tiny/system.txt"]
    assert other.prompts == {"tiny/system.txt": "You answer well."}


@pytest.mark.parametrize("name", DECIDES_NOT)
def test_what_does_not_decide_results_is_not_in_the_digest(name: str, base: Plan, tmp_path: Path) -> None:
    other = small_plan(tmp_path, **DECIDES_NOT[name])
    assert other.digest == base.digest
    assert differences(base.identity, other.identity) == []


def test_the_digest_is_the_same_after_a_trip_through_the_run_folder(base: Plan) -> None:
    recorded = json.loads(json.dumps(base.identity))
    assert differences(recorded, base.identity) == []


def test_data_is_not_in_the_digest(base: Plan, tmp_path: Path) -> None:
    assert small_plan(tmp_path, [chat("other", "x")]).digest == base.digest


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda t: st.dictionaries(st.sampled_from("abc"), t, max_size=3),
)
mappings = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@given(mappings, mappings)
def test_differences_are_empty_only_for_equal_trees(one: dict[str, Any], two: dict[str, Any]) -> None:
    found = differences(one, two)
    assert (found == []) == (dict(flat(one)) == dict(flat(two)))
    assert differences(one, one) == []
    assert len(differences(two, one)) == len(found)


def test_units_are_every_method_and_trial(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, methods=[TINY, TINY | {"name": "two"}], trials=2)
    assert plan.units("d") == [UnitKey("d", m, "", t) for t in (0, 1) for m in ("tiny", "two")]


@given(st.integers(1, 40), st.integers(1, 40))
def test_workers_share_the_cap_of_an_engine_exactly(in_flight: int, most: int) -> None:
    spec = EngineSpec("x", {}, in_flight=in_flight)
    workers = min(most, in_flight)
    shares = [spec.in_flight_in(place, workers) for place in range(workers)]
    assert sum(shares) == in_flight
    assert max(shares) - min(shares) <= 1
    assert min(shares) > 0


def test_an_engine_within_workers_has_no_more_workers_than_calls_in_flight(tmp_path: Path) -> None:
    engines = {"main": SCRIPTED | {"concurrency": 90, "replicas": 8}, "judge": SCRIPTED | {"concurrency": 2}}
    for workers in (None, 5):
        run = {"workers": workers} if workers else {}
        assert small_plan(tmp_path, engines=engines, run=run, roles={"main": "main"}).workers == 2


@pytest.mark.parametrize(
    ("concurrency", "replicas", "workers", "expected"),
    [(256, 1, 0, 2), (128, 1, 0, 1), (129, 1, 0, 2), (1, 1, 0, 1), (64, 8, 0, 4), (256, 1, 5, 5)],
)
def test_workers_follow_the_calls_in_flight(
    tmp_path: Path, concurrency: int, replicas: int, workers: int, expected: int
) -> None:
    engine = SCRIPTED | {"concurrency": concurrency, "replicas": replicas}
    plan = small_plan(tmp_path, engines={"main": engine}, run={"workers": workers})
    assert plan.workers == expected
    assert plan.units_per_worker * plan.workers >= plan.capacity
    assert plan.leased_per_worker > plan.units_per_worker


def test_paths_are_relative_to_the_job_file_and_take_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PLACE", "below")
    (tmp_path / "below").mkdir()
    write_data(tmp_path / "below" / "x.jsonl", [chat("x", "hi")])
    monkeypatch.chdir("/")
    plan = small_plan(tmp_path, data={"reader": "chat", "paths": ["$DATA_PLACE/x.jsonl", "${DATA_PLACE}/*.jsonl"]})
    assert plan.options.data.paths == (f"{tmp_path}/below/x.jsonl", f"{tmp_path}/below/*.jsonl")
    assert plan.options.domain.path == f"{tmp_path}/schema.yaml"


def test_the_resolved_job_is_a_job(base: Plan) -> None:
    settings = base.options.methods[0].settings
    assert (settings["calls"], settings["max_tokens"], settings["temperature"]) == (2, 256, 0.0)
    assert base.options.roles == {"main": "main"}
    assert yaml.safe_load(yaml.safe_dump(dict(base.job))) == base.job


def test_a_limit_in_dollars_takes_whatever_can_be_counted(tmp_path: Path) -> None:
    for price, more in (("gpt-4.1-mini", {}), ("own", {"in_actor": True})):
        engine = SCRIPTED | {"price": price, **more}
        prices, limits = {"own": {"gpu_hour": 2.0}}, {"cost_usd": 1.0}
        plan = small_plan(tmp_path, engines={"main": engine}, prices=prices, limits=limits)
        assert plan.options.limits.cost_usd == 1.0


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "limit in dollars without a price": (
        {"limits": {"cost_usd": 1.0}},
        "limits.cost_usd",
        "engine 'main' has no price, so what it costs cannot be limited",
    ),
    "limit in dollars with GPUs elsewhere": (
        {
            "engines": {"main": SCRIPTED | {"price": "own"}},
            "prices": {"own": {"gpu_hour": 2.0}},
            "limits": {"cost_usd": 1.0},
        },
        "limits.cost_usd",
        "has a price by the GPU hour and does not run here, so its hours cannot be counted",
    ),
    "role without an engine": (
        {"engines": {"a": SCRIPTED, "b": SCRIPTED}},
        "roles",
        "role 'main' has no engine. Add 'roles: {main: NAME}'; engines here: a, b.",
    ),
    "role of no engine": (
        {"engines": {"alpha": SCRIPTED, "b": SCRIPTED}, "roles": {"main": "alpah"}},
        "roles.main",
        "role 'main' names no engine of this job: 'alpah'. Did you mean 'alpha'?",
    ),
    "role nobody calls": ({"roles": {"mian": "main"}}, "roles.mian", "calls a role 'mian'. Did you mean 'main'?"),
    "method twice": ({"methods": [TINY, TINY]}, "methods.1", "two methods are named 'tiny'. Give one a 'name'."),
    "unknown method": (
        {"methods": ["trackr"]},
        "methods.0.use",
        "no method is named 'trackr'. Did you mean 'tracker'?",
    ),
    "unknown reader": ({"data": {"reader": "cat", "paths": "x"}}, "data.reader", "Did you mean 'chat'?"),
    "reader's option": (
        {"data": {"reader": "chat", "paths": "data.jsonl", "options": {"role": {}}}},
        "data.options",
        "reader 'chat' has no option 'role'. Did you mean 'roles'?",
    ),
    "no such data": ({"data": {"reader": "chat", "paths": "dta.jsonl"}}, "data.paths", "data.jsonl'?"),
    "unset variable": (
        {"data": {"reader": "chat", "paths": "$NO_SUCH_VARIABLE/x"}},
        "data.paths",
        "'$NO_SUCH_VARIABLE/x' names an environment variable that is not set",
    ),
    "no such home": ({"data": {"reader": "chat", "paths": "~nobody-here/x"}}, "data.paths", "names no home folder"),
    "null in a path": ({"data": {"reader": "chat", "paths": "a\0b"}}, "data.paths", "holds a null character"),
    "null in the schema's path": ({"schema": {"path": "a\0b"}}, "schema.path", "holds a null character"),
    "method's setting": (
        {"methods": [TINY | {"cals": 3}]},
        "methods.0.cals",
        "unknown field 'cals'. Did you mean 'calls'?",
    ),
    "method's value": ({"methods": [TINY | {"calls": "many"}]}, "methods.0.calls", "found 'many': input should be"),
    "engine's setting": ({"engines": {"main": SCRIPTED | {"rul": 1}}}, "engines.main.rul", "Did you mean 'rule'?"),
    "engine without source": ({"engines": {"main": {"use": "scripted"}}}, "engines.main", "exactly one of 'answers'"),
    "no such script": (
        {"engines": {"main": {"use": "scripted", "answers": "nope.jsonl"}}},
        "engines.main",
        "nope.jsonl: cannot read the file: No such file or directory",
    ),
    "no such rule": (
        {"engines": {"main": {"use": "scripted", "rule": "support.tiny_method:nope"}}},
        "engines.main",
        "has no attribute 'nope'",
    ),
    "number of over 64 bits": (
        {"methods": [TINY | {"max_tokens": 10**30}]},
        "",
        "methods.tiny.settings.max_tokens: 10",
    ),
    "unknown score": (
        {"scores": ["joint_goal", "slot_f"]},
        "scores.1",
        "no metric is named 'slot_f'. Did you mean 'slot_f1'?",
    ),
    "nothing to reuse": ({"run": {"reuse": ["nope"]}}, "run.reuse.0", "'nope' holds no recorded calls"),
}


@pytest.mark.parametrize("name", WRONG)
def test_slips_are_found_before_anything_starts(name: str, tmp_path: Path) -> None:
    fields, field, message = WRONG[name]
    with pytest.raises(JobError) as caught:
        small_plan(tmp_path, **fields)
    assert message in str(caught.value).replace("\\x00", "\0")
    if field:
        assert str(caught.value).startswith(f"{tmp_path}/job.yaml:")
        assert f": {field}: " in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "3", "{", "services: []", "name: x"])
def test_a_schema_that_cannot_be_used(tmp_path: Path, text: str | None) -> None:
    path = write_job(tmp_path)
    if text is None:
        (tmp_path / "schema.yaml").unlink()
    else:
        (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(SchemaError, match=r"schema\.yaml"):
        plan_of(path)


values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)
)


@given(st.sampled_from(["methods", "engines", "data", "run", "limits", "tracking"]), st.data())
def test_any_setting_is_taken_or_refused_with_an_error_of_ours(tmp_path_factory: Any, part: str, data: Any) -> None:
    fields = {
        "methods": {**TINY, "calls": 1, "poison": "", "max_tokens": 1, "temperature": 0},
        "engines": {
            **SCRIPTED,
            "latency_s": 0,
            "concurrency": 1,
            "replicas": 1,
            "seed": 0,
            "model": "m",
            "price": None,
        },
        "data": {"reader": "chat", "paths": "data.jsonl", "options": {}, "limit": 1},
        "run": {"workers": 0, "units_per_worker": 0, "reuse": []},
        "limits": {"unit_calls": 1, "stall_s": 1},
        "tracking": {"uri": "x", "experiment": "y"},
    }[part]
    name = data.draw(st.sampled_from(sorted(fields)))
    wrong: Any = {**fields, name: data.draw(values)}
    job: dict[str, Any] = {part: {"methods": [wrong], "engines": {"main": wrong}}.get(part, wrong)}
    try:
        plan = small_plan(tmp_path_factory.getbasetemp(), **job)
    except DialoomError as error:
        assert str(error)
    else:
        assert len(plan.digest) == 32
        assert plan.units("d")
