"""The walk of a baseline through a dialogue: ask, take the answer as it is, write the state, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dialoom import registry
from dialoom.agent.loop import End, Environment, Judgement, Step, View, run
from dialoom.dialogue import Dialogue, Speaker
from dialoom.engine import Message, Response
from dialoom.method import Context, MethodConfig, TurnTrace
from dialoom.methods._baseline.scene import PROMPTS, Question, Scene
from dialoom.methods.tracker.delta import changes, state_changes
from dialoom.methods.tracker.history import History
from dialoom.methods.tracker.method import all_prompts
from dialoom.methods.tracker.proposal import usable_slots
from dialoom.methods.tracker.validator import as_proposed
from dialoom.outcome import Outcome
from dialoom.prompt_files import fill, language_of, read_prompts
from dialoom.protocol import Action, ActionProtocol, NotAnAction
from dialoom.schema import Schema
from dialoom.state import BeliefState, SlotRef

ROLE = "main"
_MOST_SCENES = 4096


class BaselineConfig(MethodConfig, frozen=True):
    """Settings that all baselines share."""

    protocol: str = "json"
    """How answers are written: ``json`` (held to a schema where the engine can), ``text`` or ``tools``."""


class Asking(Environment):
    """One turn of a baseline. Subclasses say what is asked at each step and what an answer means."""

    calls = 1
    """Model calls a turn."""

    def __init__(self, scene: Scene, message: Message, state: BeliefState) -> None:
        self.scene = scene
        self.state = state
        self.delta: Mapping[SlotRef, str] | None = None
        self.proposal: Mapping[SlotRef, str] = {}
        self.unusable = False
        self._message = message

    def question(self) -> Question:
        """What is due: the system message, the form of the answer, the slots in question."""
        raise NotImplementedError

    def take(self, action: Action) -> bool:
        """Use an answer; true where the turn is over."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The name of the step that is due."""
        raise NotImplementedError

    def view(self, steps: Sequence[Step]) -> View:
        """The question that is due, and the conversation."""
        system, form, _ = self.question()
        return View((system, self._message), self.label, form.answer_schema, form.tools, form.stop)

    def parse(self, response: Response) -> Action | NotAnAction:
        """As the protocol reads it."""
        return self.scene.protocol.parse(response)

    def unreadable(self, problem: NotAnAction, steps: Sequence[Step]) -> Judgement:
        """The turn ends: there is no second try."""
        self.unusable = True
        return Judgement("", ("action.not_parsable",), finished=True)

    async def judge(self, action: Action, steps: Sequence[Step]) -> Judgement:
        """Taken as it is."""
        return Judgement("", finished=self.take(action))

    def write_state(self, action: Action, services: Sequence[str]) -> None:
        """The answer's slots as the whole state of ``services``."""
        _, _, table = self.question()
        values = as_proposed(usable_slots(action.arguments), table, self.scene.catalog.slots)
        self.delta = self.proposal = state_changes(values, self.state, services)

    def write_delta(self, values: Mapping[SlotRef, str]) -> None:
        """``values`` as changes."""
        self.proposal = values
        self.delta = changes(values, self.state)


class Baseline:
    """A baseline for one configuration; shared by all units of a worker."""

    def __init__(self, asking: Callable[[Scene, Message, BeliefState], Asking], config: BaselineConfig) -> None:
        self._asking = asking
        self._protocol: ActionProtocol = registry.find("protocols", config.protocol)
        self._scenes: dict[tuple[str, tuple[str, ...]], Scene] = {}

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        """Track one dialogue: a trace for every user turn."""
        scene, state = self._scene(ctx.schema, dialogue.lang), BeliefState()
        history = History(scene.catalog.services)
        lines = [scene.words["conversation"]]
        for index, turn in enumerate(dialogue.turns):
            history.add(index, turn.speaker, turn.text)
            lines.append(fill(scene.step_words[turn.speaker.value], text=turn.text))
            if turn.speaker is not Speaker.USER:
                continue
            asking = self._asking(scene, Message("user", "\n".join(lines)), state)
            episode = await run(ctx, asking, role=ROLE, turn=index, bound=asking.calls)
            delta = asking.delta or {}
            state = state.upsert(delta, deletes=True)
            ctx.turn(
                TurnTrace(
                    turn=index,
                    outcome=Outcome.NOT_PARSABLE if asking.unusable else _OUTCOMES[episode.end],
                    state=state,
                    delta=delta,
                    first_proposal=asking.proposal,
                    support=history.support(delta),
                    output=None if episode.end is End.FINISHED else {"ended": episode.end.value},
                    error=episode.error,
                )
            )

    def _scene(self, schema: Schema, language: str) -> Scene:
        key = (language_of(language), tuple(schema.services))
        scene = self._scenes.get(key)
        if scene is None:
            if len(self._scenes) >= _MOST_SCENES:
                self._scenes.clear()
            scene = self._scenes[key] = Scene(schema, key[0], self._protocol)
        return scene


_OUTCOMES = {
    End.FINISHED: Outcome.ACCEPTED,
    End.BOUND: Outcome.FALLBACK,
    End.NOT_PARSABLE: Outcome.NOT_PARSABLE,
    End.PROMPT_TOO_LONG: Outcome.PROMPT_TOO_LONG,
    End.REFUSED: Outcome.FALLBACK,
    End.LIMIT: Outcome.UNIT_LIMIT,
}


class BaselinePlugin:
    """How the runtime makes baselines of one kind."""

    config: type[MethodConfig] = BaselineConfig
    declares = frozenset({"state"})
    roles = (ROLE,)

    def __init__(self, name: str, asking: Callable[[Scene, Message, BeliefState], Asking]) -> None:
        self.name = name
        self._asking = asking

    def create(self, config: BaselineConfig, schema: Schema) -> Baseline:
        """A method for ``schema``. Raises JobError for an unknown protocol."""
        return Baseline(self._asking, config)

    def prompts(self, config: BaselineConfig) -> Mapping[str, str]:
        """Every prompt text by file name."""
        own = {f"baseline/{name}.txt": text for name, text in read_prompts(PROMPTS).items()}
        shared = all_prompts(config.protocol)
        return own | {n: t for n, t in shared.items() if n.endswith("/step.txt") or n.startswith("protocols/")}
