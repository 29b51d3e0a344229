"""YAML files read with the line of every field, so that an error can say where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dialoom.errors import JobError
from dialoom.text import printable

Path_ = tuple[str | int, ...]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader; duplicate keys are found while lines are collected."""


@dataclass(frozen=True)
class YamlFile:
    """A parsed file. ``lines`` maps a path of keys and indexes to the line (from 1) where its key or item stands."""

    path: Path
    data: Any
    lines: dict[Path_, int]

    def where(self, path: Path_) -> str:
        """``file:line`` of the nearest known ancestor of ``path``, and the field's own name."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known, 1)
        field = ".".join(str(p) for p in path)
        return f"{self.path}:{line}: {field}" if field else f"{self.path}:{line}"


def read_yaml(path: Path) -> YamlFile:
    """The file at ``path``. Raises JobError (missing, unreadable, not YAML, not a mapping, a key given twice)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError("no such file", where=str(path), hint=_neighbours(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"cannot be read: {error}", where=str(path)) from error
    try:
        node = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error)
        raise JobError(
            f"is not valid YAML: {problem}", where=f"{path}:{line}", hint="Check indents and colons."
        ) from error
    lines: dict[Path_, int] = {}
    if node is not None:
        _collect(node, (), lines, path)
    if not isinstance(data, dict):
        raise JobError("must be a mapping of fields", where=f"{path}:1", hint="See jobs/quickstart.yaml for the form.")
    return YamlFile(path, data, lines)


def _neighbours(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    found = sorted(p.name for p in folder.glob("*.yaml"))[:8]
    return f"YAML files in {folder}: {', '.join(printable(f) for f in found)}." if found else ""


def _collect(node: yaml.Node, prefix: Path_, lines: dict[Path_, int], path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value
            if (*prefix, name) in lines:
                raise JobError(
                    f"field '{printable(str(name))}' is given twice", where=f"{path}:{key.start_mark.line + 1}"
                )
            lines[(*prefix, name)] = key.start_mark.line + 1
            _collect(value, (*prefix, name), lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            lines[(*prefix, i)] = item.start_mark.line + 1
            _collect(item, (*prefix, i), lines, path)
