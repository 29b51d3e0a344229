"""Agreement of a judge with people."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialoom.agreement import agreement, read_labels
from dialoom.errors import DataError


def labels(text: str) -> dict[str, str]:
    return {str(i): label for i, label in enumerate(text)}


def test_kappa_of_a_textbook_table() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed .7, expected .5, kappa .4."""
    judge, human = labels("y" * 25 + "n" * 25), labels("y" * 20 + "n" * 5 + "y" * 10 + "n" * 15)
    found = agreement(judge, human)
    assert found.observed == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.interval is not None and found.interval.low < 0.4 < found.interval.high
    assert found.confusion == {("y", "y"): 20, ("y", "n"): 5, ("n", "y"): 10, ("n", "n"): 15}
    assert found.table().rows == (("n", 15, 10), ("y", 5, 20))


def test_numbers_have_a_weighted_kappa() -> None:
    near, far = agreement(labels("12345"), labels("12354")), agreement(labels("12345"), labels("52341"))
    assert near.weighted is not None and far.weighted is not None
    assert near.weighted == pytest.approx(0.9)
    assert far.weighted < near.weighted
    assert agreement(labels("ab"), labels("ab")).weighted is None


def test_ends_of_the_scale() -> None:
    assert agreement(labels("yn"), labels("yn")).kappa == 1.0
    assert agreement(labels("yn"), labels("ny")).kappa == -1.0
    assert agreement(labels("yy"), labels("yy")).kappa is None


def test_items_with_one_label_are_left_out() -> None:
    found = agreement({"a": "y", "b": "n"}, {"b": "n", "c": "y"})
    assert (found.n, found.unmatched) == (1, 2)
    with pytest.raises(DataError, match="no item is labelled by both"):
        agreement({"a": "y"}, {"b": "y"})


def test_label_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,label\n1,yes\n2,no\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "verdict": "yes"}\n\n{"dialogue_id": "2", "answer": true}\n')
    assert read_labels(tmp_path / "a.csv") == {"1": "yes", "2": "no"}
    assert read_labels(tmp_path / "b.jsonl") == {"1": "yes", "2": "true"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "item,label\n1,yes\n1,no\n", "a.csv:3: item 1 comes twice"),
        ("a.csv", "item,mark\n1,yes\n", "a.csv:2: no label"),
        ("b.jsonl", '{"item": 1, "label": "y"}\n{"item"', "b.jsonl:2: not valid JSON"),
        ("b.jsonl", "[1]\n", "b.jsonl:1: a line should be an object"),
    ],
)
def test_broken_label_files_say_where(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        read_labels(tmp_path / name)
    assert said in str(caught.value)
