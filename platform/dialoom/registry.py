"""Plug-ins by name: built-in modules, entry points, or any import path. No list of them anywhere.

A name is looked up in this order: ``package.module:attribute`` is imported; an entry point of group
``dialoom.<kind>`` of that name is loaded; the module ``dialoom.<kind>.<name>`` is imported and its ``PLUGIN`` taken.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from dialoom.errors import JobError

KINDS = ("readers", "engines", "methods", "metrics", "protocols")


def names(kind: str) -> list[str]:
    """All names of ``kind`` that :func:`find` knows without an import path, sorted."""
    package = importlib.import_module(f"dialoom.{kind}")
    built_in = {
        m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_") and _offers(kind, m)
    }
    return sorted(built_in | {e.name for e in _entries(kind)})


def _entries(kind: str) -> tuple[EntryPoint, ...]:
    """The entry points of ``kind``. Reading them takes milliseconds, so they are read once for each ``sys.path``."""
    return _entries_on(kind, tuple(sys.path))


@lru_cache(maxsize=64)
def _entries_on(kind: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"dialoom.{kind}"))


def _offers(kind: str, module: pkgutil.ModuleInfo) -> bool:
    """Whether a module may be a plug-in: a package that only groups helper modules is none."""
    if not module.ispkg:
        return True
    spec = importlib.util.find_spec(f"dialoom.{kind}.{module.name}")
    return bool(spec and spec.origin and "PLUGIN" in Path(spec.origin).read_text())


def find(kind: str, name: str) -> Any:
    """The plug-in ``name`` of ``kind``.

    Raises :class:`~dialoom.errors.JobError` with the nearest names where there is none, or where its module fails.
    """
    if ":" in name:
        return _imported(name)
    for entry in _entries(kind):
        if entry.name == name:
            return _loaded(f"{entry.name} = {entry.value}", entry.load)
    if name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(f"dialoom.{kind}.{name}"):
        module = importlib.import_module(f"dialoom.{kind}.{name}")
        if hasattr(module, "PLUGIN"):
            return module.PLUGIN
    raise JobError(f"no {kind.removesuffix('s')} is named '{name}'", hint=did_you_mean(name, names(kind)))


def _imported(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    return _loaded(path, lambda: getattr(importlib.import_module(module_name), attribute))


def _loaded(path: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise JobError(f"cannot import '{path}': {error}", hint="Write it as package.module:attribute.") from error
    except Exception as error:  # the boundary to modules of others, which may fail in any way
        what = f"cannot import '{path}': {type(error).__name__}: {error}"
        raise JobError(what, hint="The module itself fails.") from error


def did_you_mean(name: str, known: list[str]) -> str:
    """A sentence with the nearest of ``known``, or all of them where none is near."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    allowed = f"Allowed: {', '.join(known)}." if known else ""
    return f"Did you mean '{near[0]}'? {allowed}" if near else allowed
