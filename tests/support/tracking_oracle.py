"""Random tracked dialogues, and slow plain counting to hold the fast definitions against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from dialoom.metrics._build import build
from dialoom.metrics._input import ScoreInput
from dialoom.predictions import table
from support.traces import slot_values, turn_rows, whole_state

Key = tuple[str, str]
State = Mapping[Key, str]
Pair = tuple[State, State]
"""Gold and predicted state of one turn."""
Corpus = Sequence[Sequence[Pair]]

_keys = st.sampled_from(
    [("hotel", "hotel-area"), ("hotel", "hotel-name"), ("taxi", "taxi-leaveat"), ("train", "train-day")]
)
_states = st.dictionaries(_keys, st.sampled_from(["a", "b", "none", "dontcare", "x-y"]), max_size=4)


@st.composite
def _pair(draw: st.DrawFn) -> Pair:
    gold = draw(_states)
    return gold, draw(st.one_of(st.just(gold), _states))


corpora: st.SearchStrategy[Corpus] = st.lists(st.lists(_pair(), min_size=1, max_size=5), min_size=1, max_size=4)


def score_input(corpus: Corpus, names: Sequence[str] | None = None) -> ScoreInput:
    """A corpus with whole gold states as a score input; ``names`` are the dialogues' ids."""
    rows = []
    for i, dialogue in enumerate(corpus):
        turns = [{"gold": whole_state(gold), "state": slot_values(pred)} for gold, pred in dialogue]
        rows += turn_rows(names[i] if names else f"d{i}", turns)
    return build(table(rows), whole_state=True)


def pairs(corpus: Corpus) -> list[Pair]:
    """All turns."""
    return [pair for dialogue in corpus for pair in dialogue]


def counts(turns: Sequence[Pair]) -> tuple[int, int, int]:
    """True positives, false positives, false negatives."""
    tp = sum(gold.get(k) == v for gold, pred in turns for k, v in pred.items())
    return tp, sum(len(p) for _, p in turns) - tp, sum(len(g) for g, _ in turns) - tp


def change(before: State, after: State) -> dict[Key, str]:
    """What changed, dropped slots as "[DELETE]"."""
    changed = {k: v for k, v in after.items() if before.get(k) != v}
    return changed | dict.fromkeys(before.keys() - after.keys(), "[DELETE]")


def deltas(corpus: Corpus) -> list[Pair]:
    """Gold and predicted change of every turn."""
    found: list[Pair] = []
    for dialogue in corpus:
        before: Pair = ({}, {})
        for gold, pred in dialogue:
            found.append((change(before[0], gold), change(before[1], pred)))
            before = gold, pred
    return found
