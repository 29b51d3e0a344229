"""Actions as compact ReAct text: ``Thought:``, ``Action:``, ``Action Input:`` with a JSON object.

Form after ReAct (Yao et al., ICLR 2023). Labels are read in any case, with Markdown stars and full-width colons.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dialoom.engine import Message, Response
from dialoom.prompt_files import fill
from dialoom.protocol import (
    Action,
    Exchange,
    Form,
    NotAnAction,
    Tool,
    json_text,
    read_call,
)
from dialoom.protocols._forms import as_messages, words

_LABEL = re.compile(
    r"^[ \t>*#`]*(thought|action[ \t_]*input|action|observation)[ \t]*\**[ \t]*[:：][ \t]*\**[ \t]*", re.I | re.M
)
_STOP = ("\nObservation:",)


class TextProtocol:
    """Compact text ReAct; no grammar is needed."""

    name = "text"
    free_form = True

    def instructions(self, tools: Sequence[Tool], language: str, *, thought: bool = False) -> str:
        """The three lines wanted, then one example a tool; a thought is always asked for."""
        text = words(self.name, language)
        lines = [fill(text["example"], tool=t.name, arguments=json_text(t.example)) for t in tools]
        return "\n".join([text["head"], text["between"], *lines])

    def form(self, tools: Sequence[Tool], *, thought: bool = False) -> Form:
        """Only where to stop."""
        return Form(stop=_STOP)

    def parse(self, response: Response) -> Action | NotAnAction:
        """The first ``Action`` with the ``Action Input`` that follows it; what comes after is not read."""
        pieces = _LABEL.split(response.text.strip(), maxsplit=12)
        texts: dict[str, str] = {}
        for written, text in zip(pieces[1::2], pieces[2::2], strict=True):
            label = written.lower().replace(" ", "").replace("_", "").replace("\t", "")
            if label == "observation" or label in texts:
                break
            texts[label] = text.strip()
        if "action" not in texts:
            return NotAnAction("no 'Action:' line")
        if "actioninput" not in texts:
            return NotAnAction("no 'Action Input:' line")
        thought = texts.get("thought", pieces[0].strip())
        return read_call(texts["action"].strip(" `\"'*."), texts["actioninput"], thought)

    def render(self, action: Action) -> str:
        """The lines as they are asked for."""
        head = f"Thought: {action.thought}\n" if action.thought else ""
        return f"{head}Action: {action.tool}\nAction Input: {json_text(action.arguments)}"

    def messages(self, exchanges: Sequence[Exchange], language: str) -> list[Message]:
        """Answer and observation in turn."""
        return as_messages(exchanges, language, self.name)


PLUGIN = TextProtocol()
