"""What a model is told: rule, slot, offending value, what is expected, allowed values where few. Short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialoom.methods.tracker.validator import Problem
from dialoom.prompt_files import fill
from dialoom.text import printable

MOST = 4
"""Problems told at once."""
_LONGEST = 60


def told(problems: Sequence[Problem], texts: Mapping[str, str]) -> str:
    """The problems of one rejected call, one a line; where they are about slots, that nothing was recorded."""
    lines = [_line(problem, texts) for problem in problems[:MOST]]
    if len(problems) > MOST:
        lines.append(fill(texts["more"], count=str(len(problems) - MOST)))
    if any(problem.label for problem in problems):
        lines.append(texts["refused"])
    return "\n".join(lines)


def _line(problem: Problem, texts: Mapping[str, str]) -> str:
    template = texts[problem.rule]
    allowed = ", ".join(problem.allowed)
    if problem.rule == "action.malformed" and problem.ref is not None:
        template = texts["action.malformed.twice"]
    if problem.rule == "coref.copy":
        kind = "value" if problem.allowed else "none"
        allowed = fill(texts[f"coref.copy.{kind}"], allowed=allowed)
    return fill(
        template,
        label=printable(problem.label, _LONGEST),
        value=printable(problem.value, _LONGEST),
        expected=texts.get(f"expected.{problem.expected}", problem.expected),
        allowed=allowed,
    )
