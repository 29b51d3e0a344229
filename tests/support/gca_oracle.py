"""The set-based and change-based scores by slow plain counting over dictionaries, from the written rules alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from support.tracking_oracle import Corpus, Key, State, pairs


def texts(state: State) -> set[str]:
    """``domain-slot-value`` of every slot that is not "none"."""
    return {f"{slot}-{value}" for (_, slot), value in state.items() if value != "none"}


def slot(text: str) -> str:
    return text.rpartition("-")[0]


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def slot_accuracy(corpus: Corpus) -> float | None:
    scores = []
    for gold, pred in pairs(corpus):
        g, p = texts(gold), texts(pred)
        lost = {slot(x) for x in g - p}
        scores.append((30 - len(g - p) - sum(slot(x) not in lost for x in p - g)) / 30)
    return mean(scores)


def aga(corpus: Corpus) -> float | None:
    turns = [(texts(g), texts(p)) for g, p in pairs(corpus)]
    return mean([len(g & p) / len(g) for g, p in turns if g])


def iaga(corpus: Corpus) -> float | None:
    turns = [(texts(g), texts(p)) for g, p in pairs(corpus)]
    n = sum(bool(g) for g, _ in turns)
    return sum(len(g & p) / len(g | p) for g, p in turns if g | p) / n if n else None


def rsa(corpus: Corpus) -> float | None:
    scores = []
    for gold, pred in pairs(corpus):
        g, p = texts(gold), texts(pred)
        total = len({slot(x) for x in g | p})
        missed = {slot(x) for x in g} - {slot(x) for x in p}
        scores.append((total - len(missed) - len(p - g)) / total if total else 0.0)
    return mean(scores)


def fga(corpus: Corpus, rate: float) -> float | None:
    scores = []
    for dialogue in corpus:
        before: tuple[set[str], set[str]] | None = None
        error = -1
        for t, (gold, pred) in enumerate(dialogue):
            g, p = texts(gold), texts(pred)
            if g == p:
                scores.append(1.0)
            elif before is None or before[0] == before[1] or (g - before[0]) - p or (p - before[1]) - g:
                scores.append(0.0)
                error = t
            else:
                scores.append(1 - math.exp(-rate * (t - error)))
            before = g, p
    return mean(scores)


def gca_counts(corpus: Corpus) -> dict[str, int]:
    """Correct, wrong, over-predicted and missed changes."""
    total = {"correct": 0, "wrong": 0, "over": 0, "missed": 0}
    for dialogue in corpus:
        g: dict[Key, str] = {}
        p: dict[Key, str] = {}
        for t, (gold, pred) in enumerate(dialogue):
            new_g = {**dict.fromkeys(g, "none"), **gold}
            new_p = {**dict.fromkeys(p, "none"), **pred}
            dg = [k for k, v in new_g.items() if t == 0 or g.get(k) != v]
            dp = [k for k, v in new_p.items() if t == 0 or p.get(k) != v]
            g, p = new_g, new_p
            done: dict[str, set[Key]] = {kind: set() for kind in total}
            for k in dg:
                if k not in p:
                    kind = "correct" if g[k] == "none" else "missed"
                elif g[k] == p[k]:
                    kind = "correct"
                else:
                    kind = "over" if g[k] == "none" else "wrong"
                done[kind].add(k)
                total[kind] += 1
            for k in dp:
                if k not in g:
                    total["correct" if p[k] == "none" else "over"] += 1
                elif p[k] == g[k] and k not in done["correct"]:
                    total["correct"] += 1
                elif p[k] == "none":
                    total["missed"] += 1
                elif p[k] != g[k] and k not in done["wrong"]:
                    total["wrong"] += 1
    return total


def gca(corpus: Corpus) -> float | None:
    """Weighted harmonic mean of the four ratios, as written in the definition of the mean."""
    n = gca_counts(corpus)
    c, w = n["correct"], n["wrong"]
    d1, d2, alpha = c + w + n["over"], c + w + n["missed"], 10 / 11
    if not d1 + d2:
        return None
    if not c:
        return 0.0
    ratios = [(alpha * d1, c / d1), (alpha * d2, c / d2), ((1 - alpha) * d1, (c + w) / d1)]
    ratios.append(((1 - alpha) * d2, (c + w) / d2))
    return sum(weight for weight, _ in ratios) / sum(weight / r for weight, r in ratios)
