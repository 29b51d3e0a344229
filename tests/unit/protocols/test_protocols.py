"""Action protocols: what they read, that they never raise, and that what they write they can read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialoom import registry
from dialoom.answer_schema import bounded
from dialoom.engine import Response
from dialoom.protocol import MAX_DEPTH, Action, ActionProtocol, Exchange, NotAnAction, Tool
from dialoom.usage import Usage

PROTOCOLS = ["json", "text", "tools"]
LOOK = Tool(
    "look",
    "Look at something.",
    {
        "type": "object",
        "properties": {"at": {"type": "string", "maxLength": 9}},
        "required": ["at"],
        "additionalProperties": False,
    },
    {"at": "..."},
)
WAIT = Tool("wait", "Wait.", {"type": "object", "properties": {}, "additionalProperties": False}, {})


def protocol(name: str) -> ActionProtocol:
    found: ActionProtocol = registry.find("protocols", name)
    return found


def read(name: str, text: str, **fields: Any) -> Action | NotAnAction:
    return protocol(name).parse(Response(text, Usage(), **fields))


texts = st.text(st.characters(codec="utf-8"), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
).filter(lambda v: depth(v) < MAX_DEPTH)
names = st.from_regex(r"[a-z][a-z_]{0,15}", fullmatch=True)


def depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@pytest.mark.parametrize("name", PROTOCOLS)
@given(names, st.dictionaries(texts, values, max_size=3), st.sampled_from(["", "a short thought", "想一想"]))
def test_what_is_written_is_read_again(name: str, tool: str, arguments: dict[str, Any], thought: str) -> None:
    action = Action(tool, arguments, thought)
    assert read(name, protocol(name).render(action)) == action


labels = st.sampled_from(
    ["Thought:", "Action:", "Action Input:", "Observation:", "{", "}", "[", '"', "\n", "```json", "\ud800"]
)
noise = st.lists(labels | st.text(max_size=8), max_size=12).map("".join)


@pytest.mark.parametrize("name", PROTOCOLS)
@given(noise | st.text())
def test_no_text_raises_and_what_is_read_can_be_stored(name: str, text: str) -> None:
    found = read(name, text)
    if isinstance(found, Action):
        orjson.dumps(found.record())
        assert found.tool == found.tool.strip() != ""
    else:
        assert found.what


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 100_000])
def test_deep_nesting_is_no_action(name: str, depth: int) -> None:
    text = '{"tool": "look", "arguments": {"at": ' + "[" * depth + "]" * depth + "}}"
    assert isinstance(read(name, text), NotAnAction)
    assert isinstance(read(name, "Action: look\nAction Input: " + text), NotAnAction)


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "look", "arguments": {"at": "sea"}}',
        '```json\n{"tool": "look", "arguments": {"at": "sea"}}\n```',
        'Sure: {"tool": "look", "arguments": {"at": "sea"}} Done.',
        '{"name": "look", "parameters": {"at": "sea"}}',
        '{"tool": "look", "arguments": "{\\"at\\": \\"sea\\"}"}',
        '{"tool": " look ", "arguments": {"at": "sea"}} {"tool": "wait", "arguments": {}}',
    ],
)
def test_json_reads_the_first_object(text: str) -> None:
    assert read("json", text) == Action("look", {"at": "sea"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON object"),
        ("look at the sea", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"tool": "look", "arguments": {"at": "sea"', "broken JSON"),
        ("{'tool': 'look', 'arguments': {}}", "broken JSON"),
        ('{"arguments": {"at": "sea"}}', "no tool is named"),
        ('{"tool": 3, "arguments": {}}', "no tool is named"),
        ('{"tool": "look", "arguments": ["sea"]}', "the arguments are not an object"),
        ('{"tool": "look", "arguments": "sea"}', "no JSON object in the arguments"),
    ],
)
def test_json_says_why_not(text: str, why: str) -> None:
    assert read("json", text) == NotAnAction(why)


def test_numbers_that_json_text_cannot_hold_become_text() -> None:
    found = read("json", 'x {"tool": "look", "arguments": {"a": NaN, "b": ' + "9" * 30 + ', "c": "\\ud800"}}')
    assert found == Action("look", {"a": "nan", "b": "9" * 30, "c": "\\ud800"})


@pytest.mark.parametrize(
    "text",
    [
        'Thought: I look.\nAction: look\nAction Input: {"at": "sea"}',
        'thought: I look.\naction: look\naction_input: {"at": "sea"}',
        '**Thought:** I look.\n**Action:** `look`\n**Action Input:**\n```json\n{"at": "sea"}\n```',
        'Thought：I look.\nAction：look\nAction Input：{"at": "sea"}',
        'I look.\nAction: look\nAction Input: {"at": "sea"}\nObservation: nothing\nAction: wait\nAction Input: {}',
        'Thought: I look.\nAction: look\nAction Input: {"at": "sea"}\nThought: again\nAction: wait\nAction Input: {}',
    ],
)
def test_text_reads_the_first_action(text: str) -> None:
    assert read("text", text) == Action("look", {"at": "sea"}, "I look.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I look at the sea", "no 'Action:' line"),
        ("Action: look", "no 'Action Input:' line"),
        ("Action: look\nObservation: x\nAction Input: {}", "no 'Action Input:' line"),
        ("Action: \nAction Input: {}", "no tool is named"),
        ("Action: look\nAction Input: sea", "no JSON object in the arguments"),
        ('Action: look\nAction Input: {"at": ', "broken JSON in the arguments"),
    ],
)
def test_text_says_why_not(text: str, why: str) -> None:
    assert read("text", text) == NotAnAction(why)


def test_native_calls_are_read_nested_and_flat() -> None:
    arguments = '{"at": "sea"}'
    nested = {"id": "1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    flat = {"name": "look", "arguments": {"at": "sea"}}
    for call in (nested, flat):
        assert read("tools", "", tool_calls=(call, {"name": "wait"})) == Action("look", {"at": "sea"})
    assert read("tools", "", tool_calls=({"function": {"name": "look", "arguments": '{"at'}},)) == NotAnAction(
        "broken JSON in the arguments"
    )
    assert read("tools", "hm") == NotAnAction("no tool call")


def test_native_calls_come_back_as_text_in_the_history() -> None:
    exchange = Exchange("", Action("look", {"at": "sea"}), "Waves.")
    shown = protocol("tools").messages([exchange], "en")
    assert [m.role for m in shown] == ["assistant", "user"]
    assert shown[0].content == '{"tool":"look","arguments":{"at":"sea"}}'


@pytest.mark.parametrize("thought", [False, True])
def test_the_answer_schema_is_bounded_and_admits_what_is_rendered(thought: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    json = protocol("json")
    one, both = json.form([LOOK], thought=thought), json.form([LOOK, WAIT], thought=thought)
    for form in (one, both):
        assert form.answer_schema is not None
        bounded(form.answer_schema)
    said = "hm" if thought else ""
    jsonschema.validate(orjson.loads(json.render(Action("look", {"at": "sea"}, said))), one.answer_schema)
    jsonschema.validate(orjson.loads(json.render(Action("wait", {}, said))), both.answer_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(orjson.loads(json.render(Action("wait", {}, said))), one.answer_schema)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_has_words_in_both_languages(name: str, language: str) -> None:
    shown = protocol(name).instructions([LOOK, WAIT], language)
    assert shown and (name == "tools" or '{"at":"..."}' in shown)
    (answer, result) = protocol(name).messages([Exchange("x", None, "done")], language)
    assert answer.content == "x" and result.content.endswith(" done")


def test_only_the_text_form_has_a_stop_and_only_tools_definitions() -> None:
    forms = {name: protocol(name).form([LOOK, WAIT]) for name in PROTOCOLS}
    assert {n for n, f in forms.items() if f.stop} == {"text"}
    assert {n for n, f in forms.items() if f.answer_schema} == {"json"}
    assert [t["function"]["name"] for t in forms["tools"].tools] == ["look", "wait"]
