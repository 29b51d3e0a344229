"""One turn as the environment of the bounded loop: which step is due, and what becomes of each action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dialoom.agent.loop import Judgement, Step, View
from dialoom.engine import Message, Response
from dialoom.method import Fired
from dialoom.methods.tracker.catalog import IntentRef, qualified
from dialoom.methods.tracker.config import TrackerConfig
from dialoom.methods.tracker.delta import changes, state_changes
from dialoom.methods.tracker.feedback import told
from dialoom.methods.tracker.history import History, quote
from dialoom.methods.tracker.proposal import Malformed, read_intents, read_query, read_slots, usable_slots
from dialoom.methods.tracker.scene import Scene, StaticStep
from dialoom.methods.tracker.tools import CLASSIFY, RESOLVE, SEARCH
from dialoom.methods.tracker.validator import Problem, as_proposed
from dialoom.prompt_files import fill
from dialoom.protocol import Action, ActionProtocol, NotAnAction
from dialoom.state import DELETE, BeliefState, SlotRef


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What a turn starts from. ``shown_from`` is the index of the first turn that every prompt shows anyway."""

    message: Message
    state: BeliefState
    active: Mapping[str, str]
    history: History
    shown_from: int
    can_search: bool
    given_intents: tuple[IntentRef, ...] | None = None


@dataclass(slots=True)
class TurnResult:
    """What a turn has come to so far."""

    confirmed: tuple[IntentRef, ...] | None = None
    delta: Mapping[SlotRef, str] = field(default_factory=dict)
    first_proposal: Mapping[SlotRef, str] | None = None
    fired: list[Fired] = field(default_factory=list)
    ended: bool = False


class TurnEnvironment:
    """The loop's environment for one turn. Nothing leaves it but ``result``."""

    def __init__(self, scene: Scene, config: TrackerConfig, protocol: ActionProtocol, given: TurnInput) -> None:
        self.result = TurnResult(confirmed=given.given_intents)
        self._scene = scene
        self._config = config
        self._protocol = protocol
        self._given = given
        self._can_go_back = False
        self._confirmed_at = 0
        self._searched = False
        self._rules = scene.validator.rules

    def view(self, steps: Sequence[Step]) -> View:
        """The static part of the step that is due, the turn, and the steps so far."""
        static, label = self._static()
        exchanges = [step.exchange() for step in steps]
        told_so_far = self._protocol.messages(exchanges, self._scene.language) if exchanges else []
        messages = (static.system, self._given.message, *told_so_far)
        form = static.form
        return View(messages, label, form.answer_schema, form.tools, form.stop)

    def _static(self) -> tuple[StaticStep, str]:
        if self.result.confirmed is None:
            return self._scene.intent_step(), CLASSIFY
        return self._slot_step(can_go_back=self._can_go_back), RESOLVE

    def _slot_step(self, *, can_go_back: bool) -> StaticStep:
        given = self._given
        return self._scene.slot_step(
            self.result.confirmed or (),
            can_search=given.can_search and not self._searched,
            can_go_back=can_go_back,
            can_copy=len(given.state) > 0,
        )

    def parse(self, response: Response) -> Action | NotAnAction:
        """As the protocol reads it."""
        return self._protocol.parse(response)

    def unreadable(self, problem: NotAnAction, steps: Sequence[Step]) -> Judgement:
        """The form is shown again; the rule ``action.not_parsable`` is recorded, also without a validator."""
        form = self._static()[0].reminder
        return self._rejected([Problem("action.not_parsable", value=problem.what, expected=form)], steps)

    async def judge(self, action: Action, steps: Sequence[Step]) -> Judgement:
        """Check order and repetition, then what the tool itself checks."""
        if action.tool not in self._scene.tools:
            return self._rejected([Problem("action.unknown_tool", value=action.tool, allowed=self._scene.tools)], steps)
        if self._rules.action:
            problem = self._out_of_order(action, steps)
            if problem is not None:
                return self._rejected([problem], steps)
        return _TOOLS[action.tool](self, action, steps)

    def _out_of_order(self, action: Action, steps: Sequence[Step]) -> Problem | None:
        if self.result.ended:
            return Problem("action.after_end", value=action.tool)
        # Slots refused before the intents changed may be sent again.
        for step in steps[self._confirmed_at :] if action.tool == RESOLVE else steps:
            done = step.action
            if done is not None and done.tool == action.tool and done.arguments == action.arguments:
                return Problem("action.repeated", value=action.tool, expected=step.judgement.observation)
        if action.tool == RESOLVE and self.result.confirmed is None:
            return Problem("action.order", value=action.tool, expected=CLASSIFY)
        return None

    def _classify(self, action: Action, steps: Sequence[Step]) -> Judgement:
        names = read_intents(action.arguments)
        if isinstance(names, Malformed):
            if self._rules.action:
                return self._malformed(action, names, steps)
            names = []
        texts = self._scene.feedback_texts
        if not names:
            self.result.confirmed = ()
            return self._finished({}, texts["intents.none"])
        found, problems = self._scene.validator.intents(names)
        if problems:
            return self._rejected(problems, steps)
        if not found:
            found = tuple(IntentRef(service, intent) for service, intent in self._given.active.items())
        self.result.confirmed = found
        self._can_go_back = False
        self._confirmed_at = len(steps)
        labels = self._scene.catalog.intent_labels
        confirmed = ", ".join(labels.get(ref, ref.intent) for ref in found)
        what = texts[f"intents.{self._config.predict}"]
        return Judgement(fill(texts["intents.confirmed"], intents=confirmed, what=what))

    def _resolve(self, action: Action, steps: Sequence[Step]) -> Judgement:
        pairs = read_slots(action.arguments)
        if isinstance(pairs, Malformed):
            if self._rules.action:
                return self._malformed(action, pairs, steps)
            pairs = usable_slots(action.arguments)
        result, given, catalog = self.result, self._given, self._scene.catalog
        table = self._slot_step(can_go_back=False).table
        if result.first_proposal is None:
            proposed = as_proposed(pairs, table, catalog.slots)
            result.first_proposal = self._changes(proposed) if self._config.predict == "state" else proposed
        verdict = self._scene.validator.slots(pairs, table, given.state, given.history)
        if verdict.problems:
            self._can_go_back = any(p.rule in _NEED_INTENT for p in verdict.problems)
            return self._rejected(verdict.problems, steps)
        return self._finished(self._changes(verdict.delta), self._scene.feedback_texts["slots.accepted"])

    def _changes(self, values: Mapping[SlotRef, str]) -> dict[SlotRef, str]:
        if self._config.predict == "state":
            services = {ref.service for ref in self.result.confirmed or ()}
            return state_changes(values, self._given.state, services)
        changed = changes(values, self._given.state)
        if self._config.deletes:
            return {ref: v for ref, v in changed.items() if v != DELETE or ref in self._given.state}
        return changed

    def _search(self, action: Action, steps: Sequence[Step]) -> Judgement:
        query = read_query(action.arguments)
        if isinstance(query, Malformed):
            return self._malformed(action, query, steps)
        self._searched = True
        texts, given = self._scene.feedback_texts, self._given
        found = given.history.search(query, before=given.shown_from)
        if not found:
            return Judgement(texts["found.nothing"])
        lines = [texts["found"]]
        for said in sorted(found, key=lambda s: s.turn):
            changes = "; ".join(f"{qualified(*ref)} = {value}" for ref, value in said.changed.items())
            shown = fill(texts["found.changes"], changes=changes) if changes else ""
            speaker = texts[f"speaker.{said.speaker.value}"]
            line = fill(texts["found.turn"], speaker=speaker, text=quote(said.text, query), changes=shown)
            lines.append(line.rstrip())
        return Judgement("\n".join(lines))

    def _malformed(self, action: Action, form: Malformed, steps: Sequence[Step]) -> Judgement:
        return self._rejected([Problem("action.malformed", value=action.tool, expected=form.expected)], steps)

    def _rejected(self, problems: Sequence[Problem], steps: Sequence[Step]) -> Judgement:
        call = len(steps)
        for problem in problems:
            service, slot = problem.ref or ("", problem.label)
            expected = problem.expected or " | ".join(problem.allowed)
            if problem.rule in _LONG:
                expected = ""
            self.result.fired.append(Fired(problem.rule, call, service, slot, problem.value, expected))
        rules = tuple(dict.fromkeys(problem.rule for problem in problems))
        return Judgement(told(problems, self._scene.feedback_texts), rules)

    def _finished(self, delta: Mapping[SlotRef, str], observation: str) -> Judgement:
        self.result.delta = delta
        self.result.ended = True
        return Judgement(observation, finished=True)


_TOOLS: Mapping[str, Callable[[TurnEnvironment, Action, Sequence[Step]], Judgement]] = {
    CLASSIFY: TurnEnvironment._classify,
    RESOLVE: TurnEnvironment._resolve,
    SEARCH: TurnEnvironment._search,
}
_LONG = frozenset(["action.repeated", "action.not_parsable"])
_NEED_INTENT = frozenset(["action.intent_not_confirmed", "schema.unknown_slot"])
