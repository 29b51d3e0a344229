"""``docs/metrics.md`` from the definitions' own words: ``python -m dialoom.metrics._page [FILE]``."""

from __future__ import annotations

import sys
from pathlib import Path

from dialoom import registry
from dialoom.metric import Definition

HEAD = """# Metrics

Written by `python -m dialoom.metrics._page docs/metrics.md` from the definitions themselves; do not edit by hand.

Ask for any set of definitions with `scores: [name, ...]` in a job or on the command line; without a wish,
every definition that fits the data is computed. Definitions of published evaluators equal those evaluators' numbers;
their oddities are kept on purpose and said below. Names in reports, `scores.json` and MLflow:

* `definition/measure`: the overall figure; `.../low` and `.../high`: its 95 % interval, by bootstrap over dialogues;
* `definition/measure/kind/label`: a breakdown (`service`, `domain`, `services` for seen and unseen, `slot`,
  `turn_depth`, `dialogue_length`, `n_services`, `rule`); MLflow gets those by service, domain, `services` and rule;
* `coverage/...`: dialogues scored, dialogues in all, their share, and labelled turns. Dialogues that ended by an
  infrastructure failure, a job limit, an interruption or bad input are left out of every figure and counted here.

Accuracies, precisions, recalls and F1 are fractions, also where the published evaluator prints percent. A score of an
output that a method does not declare is null, never 1. Gold is the whole state: where data annotates active services
only (SGD), a service keeps its last annotated frame, except in the `sgd_*` definitions, which look at frames.

| definition | meaning | computed |
|---|---|---|
"""

WHEN = {
    "any": "always",
    "frames": "where gold is per active service (SGD)",
    "multiwoz": "on MultiWOZ",
}


def page() -> str:
    """The whole page as Markdown."""
    definitions: list[Definition] = [registry.find("metrics", name) for name in registry.names("metrics")]
    index = "".join(f"| [{d.name}](#{d.name}) | {d.meaning} | {WHEN[d.data]} |\n" for d in definitions)
    return HEAD + index + "".join(_section(d) for d in definitions)


def _section(definition: Definition) -> str:
    rows = "".join(
        f"| `{definition.name}/{m.name}` | {m.meaning} | {m.needs or '–'} | {m.unit} | {_better(m.higher_is_better)} |"
        "\n"
        for m in definition.measures
    )
    return (
        f"\n## {definition.name}\n\n{definition.meaning[0].upper()}{definition.meaning[1:]}. "
        f"Source: {definition.source}.\n\n{definition.formula}\n\n"
        f"| name | meaning | judges | unit | better |\n|---|---|---|---|---|\n{rows}"
    )


def _better(higher: bool | None) -> str:
    return "–" if higher is None else "higher" if higher else "lower"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/metrics.md").write_text(page())
