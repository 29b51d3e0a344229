"""Prompt files: reading, entries, and filling fields with untrusted text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom.prompt_files import entries, fill, language_of, read_prompts


def test_files_are_read_by_language_and_name(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "system.txt").write_text("\nHello.\n\n", encoding="utf-8")
    (tmp_path / "en" / "notes.md").write_text("no prompt", encoding="utf-8")
    assert read_prompts(tmp_path) == {"en/system": "Hello."}


def test_entries_keep_the_first_mark_and_skip_notes() -> None:
    text = "# a note = none\nhead = a = b\\nc\n\nempty =\nname =  x \n"
    assert entries(text) == {"head": "a = b\nc", "name": "x"}


@pytest.mark.parametrize(
    ("tag", "language"), [("zh", "zh"), ("zh-CN", "zh"), ("ZH", "zh"), ("en", "en"), ("de", "en"), ("", "en")]
)
def test_language(tag: str, language: str) -> None:
    assert language_of(tag) == language


def test_fill_leaves_other_braces_alone() -> None:
    assert fill('{"a": {x}} {y} {x', x="1") == '{"a": 1} {y} {x'
    assert fill("{a}{b}", a="{b}", b="{a}") == "{b}{a}"


@given(st.text(), st.text())
def test_filled_text_is_never_filled_again(first: str, second: str) -> None:
    assert fill("<{a}|{b}>", a=first, b=second) == f"<{first}|{second}>"
