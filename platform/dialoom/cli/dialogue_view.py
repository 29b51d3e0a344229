"""One dialogue of a run, turn by turn: what was said, what was proposed and rejected, state against gold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from dialoom.cli.results import outcome_style
from dialoom.cli.terminal import out, safe
from dialoom.errors import JobError
from dialoom.registry import did_you_mean
from dialoom.traces.read import dialogue_ids, messages, one_dialogue

Row = dict[str, Any]


def show_dialogue(run: Path, dialogue_id: str, *, prompts: bool = False) -> None:
    """Print the dialogue, method by method. Raises JobError for an id that the run does not hold."""
    rows = one_dialogue(run, dialogue_id)
    if not rows["dialogues"]:
        known = dialogue_ids(run)
        hint = (
            did_you_mean(dialogue_id, known[:5000]) if len(known) < 40 else did_you_mean(dialogue_id, known[:5000])[:80]
        )
        raise JobError(f"no dialogue '{dialogue_id}' in this run", where=str(run), hint=hint)
    texts = messages(run, [i for c in rows["calls"] for i in c["message_ids"] or []]) if prompts else {}
    for unit in rows["dialogues"]:
        mine = {t: [r for r in rows[t] if _key(r) == _key(unit)] for t in ("turns", "calls")}
        _head(unit)
        for turn in mine["turns"]:
            _turn(turn, [c for c in mine["calls"] if c["turn"] == turn["turn"]], texts)
        out.print()


def _key(row: Row) -> tuple[Any, ...]:
    return row["method"], row["cell"], row["trial"]


def _head(unit: Row) -> None:
    line = Text.assemble(safe(unit["dialogue_id"], 80, "bold"), "  ", safe(unit["method"], 60, "cyan"))
    if unit["cell"] or unit["trial"]:
        line.append(f" {unit['cell']}#{unit['trial']}", style="cyan")
    line.append("  ").append(unit["outcome"], style=outcome_style(unit["outcome"]))
    line.append(f"  {unit['n_calls'] or 0} calls, {unit['output_tokens'] or 0} tokens out", style="dim")
    out.print(line)
    if unit["error"]:
        out.print(safe(unit["error"], 400, "red"))


def _turn(turn: Row, calls: list[Row], texts: dict[str, tuple[str, str]]) -> None:
    out.print()
    if turn["system_text"]:
        out.print(_said("system", turn["system_text"], "dim"))
    out.print(_said(f"user {turn['user_turn'] + 1}", turn["user_text"], "bold"))
    for call in calls:
        _call(call, texts)
    if turn["state"] is not None or turn["gold"] is not None:
        out.print(_state(turn))


def _said(who: str, text: str, style: str) -> Text:
    return Text.assemble((f"{who:>9}  ", "dim"), safe(text, 1200, style))


def _call(call: Row, texts: dict[str, tuple[str, str]]) -> None:
    for message_id in call["message_ids"] or []:
        if message_id in texts:
            role, content = texts[message_id]
            for i, part in enumerate(content.split("\n")):
                out.print(Text.assemble((f"{role if i == 0 else '':>11}│ ", "dim"), safe(part, 400, "dim")))
    rejected = bool(call["rules"])
    mark, colour = ("✗", "yellow") if rejected else ("✓", "green")
    if call["error"]:
        mark, colour = "!", "red"
    line = Text.assemble((f"{mark:>9}  ", colour), safe(call["action"] or call["text"] or call["error"] or "", 300))
    figures = f"  {call['prompt_tokens'] or 0}→{call['output_tokens'] or 0} tokens"
    line.append(
        figures + (" replayed" if call["replayed"] else f" {call['latency_s'] or 0:.2f} s"), style="bright_black"
    )
    out.print(line)
    if rejected or call["step"] == "search_history":
        rules = ", ".join(call["rules"] or [])
        out.print(
            Text.assemble(
                " " * 11, (rules + "  " if rules else "", "yellow"), safe(call["observation"] or "", 400, "dim")
            )
        )


def _state(turn: Row) -> Text:
    """The state, changes of this turn marked; slots that differ from gold say how."""
    changed = {(d["service"], d["slot"]) for d in turn["delta"] or []}
    gold: dict[tuple[str, str], list[str]] | None = None
    if turn["gold"] is not None:
        gold = {(f["service"], v["slot"]): v["values"] for f in turn["gold"] for v in f["slot_values"]}
    state = {(s["service"], s["slot"]): s["value"] for s in turn["state"] or []}
    covered = {f["service"] for f in turn["gold"] or []}
    line = Text(" " * 11)
    for key, value in state.items():
        style = "bold" if key in changed else ""
        line.append_text(safe(f"{key[1]}=", style=style)).append_text(safe(value, 60, style))
        if gold is not None and key[0] in covered:
            if key not in gold:
                line.append(" (not in gold)", style="red")
            elif value not in gold[key]:
                line.append_text(safe(f" (gold {gold[key][0] if gold[key] else ''})", 80, "red"))
        line.append("  ")
    for key, values in (gold or {}).items():
        if key not in state:
            line.append_text(safe(f"{key[1]} missing (gold {values[0] if values else ''})  ", 90, "red"))
    if turn["outcome"] and turn["outcome"] != "accepted":
        line.append(turn["outcome"], style=outcome_style(turn["outcome"]))
    return line if line.plain.strip() else Text(" " * 11 + "(empty state)", style="dim")
