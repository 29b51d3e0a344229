"""``dialoom bench engine``: a job's output tokens a second against the same prompts given to bare vLLM at once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialoom.engine import Address, Message, Request, Sampling
from dialoom.errors import JobError
from dialoom.runtime.folder import RunFolder
from dialoom.traces.read import messages as read_messages
from dialoom.traces.read import read_table


@dataclass(frozen=True)
class EngineShare:
    """Output tokens a second of a job and of bare vLLM on the same calls, from first call to last answer.

    While dialogues still wait for their turn the job has as many calls under way as it may have; after that only
    those that are left, each of which waits for its own last answer, as no bare batch does. ``busy_s`` is the time
    until the last dialogue began, ``busy_output_tokens`` what was answered in it.
    """

    calls: int
    prompt_tokens: int
    cached_share: float
    job_output_tokens: int
    job_s: float
    bare_output_tokens: int
    bare_s: float
    busy_s: float
    busy_output_tokens: float
    bare_cached_share: float

    @property
    def job_rate(self) -> float:
        """Output tokens a second of the job."""
        return self.job_output_tokens / self.job_s

    @property
    def bare_rate(self) -> float:
        """Output tokens a second of bare vLLM."""
        return self.bare_output_tokens / self.bare_s

    @property
    def share(self) -> float:
        """The job's rate over bare vLLM's."""
        return self.job_rate / self.bare_rate

    @property
    def busy_share(self) -> float:
        """The job's rate while dialogues were waiting over bare vLLM's."""
        return self.busy_output_tokens / self.busy_s / self.bare_rate if self.busy_s > 0 else 0.0


def engine_share(folder: RunFolder) -> EngineShare:
    """Measure a finished run of one vLLM engine; loads the model anew in this process. Raises JobError."""
    import pyarrow.dataset as ds

    unanswered = ds.field("finish_reason").isin(["error", "vectors"])
    where = (ds.field("replayed") == False) & ~unanswered  # noqa: E712 - an Arrow expression
    rows = read_table(folder.path, "calls", where=where).sort_by("sent_at").to_pylist()
    if not rows:
        raise JobError("no call of this run was sent to an engine", where=str(folder), hint="Bench a fresh run.")
    started = min(r["sent_at"].timestamp() for r in rows)
    ended = max(r["sent_at"].timestamp() + r["latency_s"] for r in rows)
    bare_tokens, bare_s, bare_cached = _bare(_plugin_settings(folder), _requests(folder, rows))
    prompt_tokens = sum(r["prompt_tokens"] for r in rows)
    return EngineShare(
        calls=len(rows),
        prompt_tokens=prompt_tokens,
        cached_share=sum(r["cached_tokens"] for r in rows) / max(1, prompt_tokens),
        job_output_tokens=sum(r["output_tokens"] for r in rows),
        job_s=ended - started,
        bare_output_tokens=bare_tokens,
        bare_s=bare_s,
        busy_s=max(0.0, (busy_until := _last_begun(folder)) - started),
        busy_output_tokens=_answered_until(rows, busy_until),
        bare_cached_share=bare_cached,
    )


def _last_begun(folder: RunFolder) -> float:
    """When the last unit began (epoch seconds)."""
    begun = read_table(folder.path, "dialogues", columns=["started_at"])["started_at"].to_pylist()
    return max((float(t.timestamp()) for t in begun if t is not None), default=0.0)


def _answered_until(rows: Sequence[dict[str, Any]], until: float) -> float:
    """Output tokens up to a time; a call under way then counts for the part of its time that was over."""
    total = 0.0
    for row in rows:
        queued = row["queue_s"] or 0.0
        done = (until - row["sent_at"].timestamp() - queued) / max(row["latency_s"] - queued, 1e-6)
        total += row["output_tokens"] * min(1.0, max(0.0, done))
    return total


def _plugin_settings(folder: RunFolder) -> dict[str, Any]:
    from dialoom.runtime.recorded import engine_entries

    found = [e for e in engine_entries(folder).values() if e["use"] == "vllm"]
    if len(found) != 1:
        raise JobError(f"the run has {len(found)} vLLM engines", where=str(folder), hint="Bench a run of one.")
    return {k: v for k, v in found[0].items() if k != "use"}


def _requests(folder: RunFolder, rows: Sequence[dict[str, Any]]) -> list[Request]:
    ids = [i for r in rows for i in [*(r["message_ids"] or []), r["answer_schema_id"]] if i]
    texts = read_messages(folder.path, ids)
    requests = []
    for row in rows:
        schema = row["answer_schema_id"]
        sampling = json.loads(row["sampling"])
        requests.append(
            Request(
                tuple(Message(*texts[i]) for i in row["message_ids"]),
                Sampling(**{**sampling, "stop": tuple(sampling["stop"])}),
                Address(row["dialogue_id"], row["turn"], row["call"]),
                answer_schema=None if schema is None else json.loads(texts[schema][1]),
            )
        )
    return requests


def _bare(settings: dict[str, Any], requests: Sequence[Request]) -> tuple[int, float, float]:
    """Output tokens, seconds and share of cached prompt tokens of vLLM's own batch interface, all prompts at once.

    After a warm-up, with an empty prefix cache.
    """
    from dialoom.engines._vllm_bare import bare
    from dialoom.engines.vllm import VLLMConfig

    llm, prompts, parameters = bare(VLLMConfig.model_validate(settings), requests)
    try:
        llm.generate(prompts[:1], parameters[:1], use_tqdm=False)
        llm.reset_prefix_cache()
        started = time.perf_counter()
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - started
    finally:
        llm.llm_engine.engine_core.shutdown()  # else this process waits for the engine's when it ends
    cached = sum(o.num_cached_tokens or 0 for o in outputs) / sum(len(o.prompt_token_ids) for o in outputs)
    return sum(len(o.outputs[0].token_ids) for o in outputs), seconds, cached


def default_job(folder: Path, n_dialogues: int) -> Path:
    """A job file over synthetic dialogues with the default model, for a machine without data.

    Many short dialogues, short answers and a small batch: the batch is full for most of the time, as in a large job.
    """
    import yaml

    from dialoom.bench.data import write_data

    schema, data = write_data(folder, n_dialogues, turns=(2, 4))
    job = {
        "name": "bench-engine",
        "data": {"reader": "chat", "paths": [str(data)]},
        "schema": {"path": str(schema)},
        "methods": [{"use": "tracker", "max_tokens": 96}],
        "engines": {"m": {"use": "vllm", "model": "default", "max_num_seqs": 8}},
        "scores": ["effort"],
        "run": {"root": str(folder)},
        "tracking": {"enabled": False},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path
