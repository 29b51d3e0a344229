"""The bounded tracker: turn by turn, intents, then slots, each proposal checked before it is written.

After ReacTOD (arXiv 2605.19077): the model proposes, a deterministic validator disposes.
"""

from __future__ import annotations

from collections.abc import Mapping

from dialoom import registry
from dialoom.agent.loop import End, Episode, run
from dialoom.dialogue import Dialogue, Speaker, Turn
from dialoom.engine import Message
from dialoom.errors import DataError
from dialoom.method import Context, TurnTrace
from dialoom.methods.tracker.catalog import IntentRef
from dialoom.methods.tracker.config import TrackerConfig
from dialoom.methods.tracker.gold import gold_intents, gold_state, gold_values
from dialoom.methods.tracker.history import History
from dialoom.methods.tracker.one_pass import OnePass
from dialoom.methods.tracker.scene import Scene
from dialoom.methods.tracker.turn import TurnEnvironment, TurnInput, TurnResult
from dialoom.outcome import Outcome
from dialoom.prompt_files import fill, language_of
from dialoom.protocol import ActionProtocol
from dialoom.schema import Schema
from dialoom.state import BeliefState, SlotRef

ROLE = "main"
_MOST_SCENES = 4096


class Tracker:
    """The method for one configuration; shared by all units of a worker."""

    def __init__(self, config: TrackerConfig, schema: Schema) -> None:
        self.config = config
        self.protocol: ActionProtocol = registry.find("protocols", config.protocol)
        self._schema = schema
        self._scenes: dict[tuple[str, tuple[str, ...]], Scene] = {}

    async def run(self, dialogue: Dialogue, ctx: Context) -> None:
        """Track one dialogue: a trace for every user turn. Raises DataError where gold is asked for and absent."""
        schema = ctx.schema if self.config.candidates == "dialogue" else self._schema
        run = DialogueRun(self, dialogue, ctx, self.scene(schema, dialogue.lang))
        for index, turn in enumerate(dialogue.turns):
            await run.take(index, turn)

    def scene(self, schema: Schema, language: str) -> Scene:
        """The rendered scene for the services of ``schema``; made once."""
        key = (language_of(language), tuple(schema.services))
        scene = self._scenes.get(key)
        if scene is None:
            if len(self._scenes) >= _MOST_SCENES:
                self._scenes.clear()
            scene = self._scenes[key] = Scene(schema, key[0], self.config, self.protocol)
        return scene


class DialogueRun:
    """One dialogue on its way through the tracker."""

    def __init__(self, tracker: Tracker, dialogue: Dialogue, ctx: Context, scene: Scene) -> None:
        self.state = BeliefState()
        self.active: Mapping[str, str] = {}
        self._tracker = tracker
        self._config = tracker.config
        self._dialogue = dialogue
        self._ctx = ctx
        self._scene = scene
        self._history = History(scene.catalog.services)
        self._gold: dict[SlotRef, tuple[str, ...]] = {}
        self._last_user = -1

    async def take(self, index: int, turn: Turn) -> None:
        """Add a turn; a user turn is tracked and reported."""
        self._history.add(index, turn.speaker, turn.text)
        if turn.speaker is not Speaker.USER:
            return
        given = self._input(index, turn)
        environment = (TurnEnvironment if self._config.loop else OnePass)(
            self._scene, self._config, self._tracker.protocol, given
        )
        if given.given_intents == ():
            episode = Episode(end=End.FINISHED)
        else:
            episode = await run(self._ctx, environment, role=ROLE, turn=index, bound=self._bound)
        self._report(index, episode, environment.result, given)
        self._last_user = index

    @property
    def _bound(self) -> int:
        if self._config.loop:
            return self._config.k_max
        return 1 if self._config.gold_intents else 2

    def _input(self, index: int, turn: Turn) -> TurnInput:
        config, given_intents = self._config, None
        if config.teacher_forcing and self._last_user >= 0:
            self.state = gold_state(self._gold, self.state)
        if config.gold_intents or config.teacher_forcing:
            given_intents = self._take_gold(index, turn)
        shown_from = self._last_user + 1
        on_demand = config.history == "on_demand" and config.loop
        return TurnInput(
            message=Message("user", self._changing_part(turn.text, shown_from)),
            state=self.state,
            active=self.active,
            history=self._history,
            shown_from=shown_from,
            can_search=on_demand and shown_from > 0,
            given_intents=given_intents,
        )

    def _take_gold(self, index: int, turn: Turn) -> tuple[IntentRef, ...] | None:
        if turn.frames is None:
            where = f"dialogue {self._dialogue.dialogue_id}, turn {index}"
            hint = "Turn gold_intents and teacher_forcing off for data without annotation."
            raise DataError("the turn has no annotation", where=where, hint=hint)
        before, self._gold = self._gold, gold_values(turn, self._gold)
        return gold_intents(turn, before, self._gold, self._scene.catalog) if self._config.gold_intents else None

    def _changing_part(self, user_text: str, shown_from: int) -> str:
        words = self._scene.step_texts
        lines = [self._scene.record(self.state, self.active)]
        turns = self._history.turns[:-1]
        if self._config.history == "whole" and shown_from > 0:
            lines.append(words["history"])
            lines += [fill(words[t.speaker.value], text=t.text) for t in turns if t.turn < shown_from]
        said = [t.text for t in turns if t.turn >= shown_from]
        lines.append(fill(words["system"], text="\n".join(said)) if said else words["system.none"])
        lines.append(fill(words["user"], text=user_text))
        return "\n".join(lines)

    def _report(self, index: int, episode: Episode, result: TurnResult, given: TurnInput) -> None:
        config = self._config
        if result.ended:
            self.state = self.state.upsert(result.delta, deletes=config.deletes or config.predict == "state")
        delta = result.delta if result.ended else {}
        if delta:
            self._history.change(delta)
        intents = result.confirmed or ()
        if result.confirmed == () and given.given_intents is None:
            self.active = {}
        elif intents:
            self.active = {**self.active, **dict(intents)}
        self._ctx.turn(
            TurnTrace(
                turn=index,
                outcome=outcome_of(episode, result, loop=config.loop),
                state=self.state,
                delta=delta,
                intents=intents,
                active_intents=self.active,
                first_proposal=result.first_proposal or {},
                fired=result.fired,
                support=self._history.support(delta) if delta else (),
                output=None if episode.end is End.FINISHED else {"ended": episode.end.value},
                error=episode.error,
            )
        )


_OUTCOMES = {
    End.BOUND: Outcome.FALLBACK,
    End.NOT_PARSABLE: Outcome.NOT_PARSABLE,
    End.PROMPT_TOO_LONG: Outcome.PROMPT_TOO_LONG,
    End.REFUSED: Outcome.FALLBACK,
    End.LIMIT: Outcome.UNIT_LIMIT,
}


def outcome_of(episode: Episode, result: TurnResult, *, loop: bool) -> Outcome:
    """The outcome of a turn. Without a loop nothing is corrected, and a last answer that is no action counts."""
    if episode.end is End.FINISHED:
        return Outcome.CORRECTED if loop and result.fired else Outcome.ACCEPTED
    if not loop and episode.steps and episode.steps[-1].action is None:
        return Outcome.NOT_PARSABLE
    return _OUTCOMES[episode.end]


def all_prompts(protocol: str) -> Mapping[str, str]:
    """Every prompt text by file name, with those of one action protocol: for the digest and the artefacts."""
    from dialoom.methods.tracker.scene import PROMPTS
    from dialoom.prompt_files import read_prompts
    from dialoom.protocols._forms import FOLDER

    name = registry.find("protocols", protocol).name
    own = {f"tracker/{file}.txt": text for file, text in read_prompts(PROMPTS).items()}
    forms = {f"protocols/{f}.txt": t for f, t in read_prompts(FOLDER).items() if f.endswith(f"/{name}")}
    return own | forms
