"""A scripted rule that gives the tracker valid answers from the request alone: two calls a turn on any data.

For load tests: ``engines: {main: {use: scripted, rule: "dialoom.methods.tracker._rule:answer"}}``. It names the first
intent offered, then sets the first slot that lists its values, so that the state moves too.
"""

from __future__ import annotations

from functools import cache

from dialoom.engine import Request
from dialoom.prompt_files import LANGUAGES, entries, read_prompts


def answer(request: Request) -> str:
    """A valid answer in the form that the request asks for; some microseconds."""
    part = request.messages[0].content.rpartition("\n\n")[2]
    if part.startswith(_heads()):
        return _written(request, "classify_intent", f'{{"intents":["{_label(part, part.find(_ITEM))}"]}}')
    bar = part.find(" | ")
    if bar < 0:
        return _written(request, "resolve_slots", '{"slots":[]}')
    line = part.rfind(_ITEM, 0, bar)
    value = part[max(part.rfind("[", line, bar), part.rfind("【", line, bar)) + 1 : bar]
    pair = f'{{"slot":"{_label(part, line)}","value":"{value}"}}'
    return _written(request, "resolve_slots", f'{{"slots":[{pair}]}}')


answer.addressed = False  # type: ignore[attr-defined]

_ITEM = "\n- "


def _label(part: str, line: int) -> str:
    start = line + len(_ITEM)
    ends = [end for mark in (": ", "：") if (end := part.find(mark, start)) >= 0]
    return part[start : min(ends, default=len(part))]


def _written(request: Request, tool: str, arguments: str) -> str:
    if request.sampling.stop:
        return f"Thought: by rule\nAction: {tool}\nAction Input: {arguments}"
    return f'{{"tool":"{tool}","arguments":{arguments}}}'


@cache
def _heads() -> tuple[str, ...]:
    """How the list of intents begins, in every language."""
    from dialoom.methods.tracker.scene import PROMPTS

    texts = read_prompts(PROMPTS)
    return tuple(entries(texts[f"{language}/step"])["intents"] for language in LANGUAGES)
