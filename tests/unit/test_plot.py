"""The Pareto front as a picture, in every form; labels are data, never markup or code."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.errors import JobError
from dialoom.plot import check_plot, pareto_chart, ranges, rendered, save_plot, scale_over
from dialoom.systems import System
from support.systems import JGA, system

EVIL = "</script><script>alert(1)</script><b onclick=x>&\"'"


def systems(n: int = 12, name: Callable[[int], str] = lambda i: f"cell-{i}") -> list[System]:
    return [
        system(name(i), {JGA: 0.2 + 0.05 * (i % 7), "tokens": 200.0 + 90 * i, "latency_s": 0.5 + 0.1 * ((i * 5) % n)})
        for i in range(n)
    ]


def test_png_is_a_picture_of_two_panels(tmp_path: Path) -> None:
    path = tmp_path / "front.png"
    save_plot(path, systems(), "joint_goal")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert width > 1.7 * height > 1500


def test_svg_shows_labels_axes_and_units_as_text() -> None:
    root = ElementTree.fromstring(rendered(pareto_chart(systems(), "joint_goal"), "svg"))
    words = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {f"cell-{i}" for i in range(12)} <= set(words)
    assert "joint_goal (%)" in words
    assert "Tokens a turn (prompt and output, mean)" in words
    assert "Latency of a turn (s, mean)" in words


def test_no_label_becomes_markup_in_svg() -> None:
    shown = [*systems(3), *systems(1, lambda _: EVIL)]
    root = ElementTree.fromstring(rendered(pareto_chart(shown, "joint_goal"), "svg"))
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] in ("script", "b", "a", "foreignObject")]
    assert any(EVIL in "".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text"))


class Page(HTMLParser):
    """Counts a page's elements, and what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [v or "" for n, v in attrs if n in ("src", "href")]


def test_html_is_one_file_that_no_label_can_break() -> None:
    shown = [*systems(3), *systems(1, lambda _: EVIL)]
    page = Page()
    text = rendered(pareto_chart(shown, "joint_goal"), "html").decode()
    page.feed(text)
    assert page.tags == ["html", "head", "meta", "title", "script", "body", "div", "script"]
    assert page.loads == []
    call = text[text.index("vegaEmbed(") :]
    spec = json.JSONDecoder().raw_decode(call[call.index("{") :])[0]
    assert EVIL in json.dumps(spec, ensure_ascii=False).replace('\\"', '"')


def test_json_is_vega_lite(tmp_path: Path) -> None:
    save_plot(tmp_path / "front.json", systems(), JGA)
    spec = json.loads((tmp_path / "front.json").read_bytes())
    assert "vega-lite" in spec["$schema"]
    assert len(spec["hconcat"]) == 2


def test_long_names_stand_in_a_key_and_numbers_at_the_points() -> None:
    shown = systems(20, lambda i: f"a name that is far too long for a plot, number {i:02d}")
    spec = pareto_chart(shown, "joint_goal").to_dict()
    texts = set(re.findall(r'"text": "([^"]*)"', json.dumps(spec, ensure_ascii=False)))
    assert {f"{i}" for i in range(1, 21)} <= texts
    assert any(t.startswith("1  a name") for t in texts)


def test_equal_points_share_a_number() -> None:
    shown = [system("x" * 40 + str(i), {JGA: 0.5, "tokens": 10.0, "latency_s": 1.0}) for i in range(5)]
    assert '"text": "1–5"' in json.dumps(pareto_chart(shown, "joint_goal").to_dict(), ensure_ascii=False)


def test_a_metric_or_cost_that_is_not_there() -> None:
    with pytest.raises(JobError, match="no system has a metric 'gca'"):
        pareto_chart(systems(), "gca")
    with pytest.raises(JobError, match="nothing to draw"):
        pareto_chart([system("a", {JGA: 0.5})], "joint_goal")


def test_the_file_is_checked_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match="knows no ending") as ending:
        check_plot(tmp_path / "front.pgn")
    assert "Did you mean '.png'?" in ending.value.hint
    with pytest.raises(JobError, match="no such folder"):
        check_plot(tmp_path / "absent" / "front.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JobError, match="needs altair and vl-convert-python") as missing:
        check_plot(tmp_path / "front.png")
    assert "pip install" in missing.value.hint


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.booleans())
def test_a_scale_holds_its_values_and_comes_back(values: list[float], may_log: bool) -> None:
    scale = scale_over(values, 400.0, may_log=may_log)
    for value in values:
        assert -1e-6 <= scale.at(value) <= 400.0 + 1e-6
        assert scale.back(scale.at(value)) == pytest.approx(value, rel=1e-6, abs=1e-6 * (scale.high - scale.low))


@given(st.sets(st.integers(1, 60)))
def test_ranges_name_every_number_once(numbers: set[int]) -> None:
    named: list[int] = []
    for part in ranges(list(numbers)).split(", ") if numbers else []:
        low, _, high = part.partition("–")
        named += range(int(low), int(high or low) + 1)
    assert named == sorted(numbers)
