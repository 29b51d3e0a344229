"""YAML files read with the line of every field, so that an error can say where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dialoom.errors import JobError
from dialoom.text import printable

Path_ = tuple[str | int, ...]

MAX_PLACES = 100_000
"""Fields and items a file may have with its aliases filled in: a few lines of aliases can stand for billions."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader; duplicate keys are found while lines are collected."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; PyYAML's own slips over dates, numbers and flags (ValueError and others) become its YAMLError."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"this is no {kind}: {str(node.value)[:60]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


# A table of its own: some libraries (lm-format-enforcer, which vLLM imports) change the shared one, dates for all.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_timestamp)


@dataclass(frozen=True)
class YamlFile:
    """A parsed file. ``lines`` maps a path of keys and indexes to the line (from 1) where its key or item stands.

    Keys stand in ``lines`` as they are written. ``given`` are the fields that came from elsewhere: the command line.
    """

    path: Path
    data: Any
    lines: dict[Path_, int]
    given: Collection[Path_] = ()

    def where(self, path: Path_) -> str:
        """``file:line`` of the nearest known ancestor of ``path``, and the field's own name."""
        field = ".".join(str(p) for p in path)
        if any(path[: len(own)] == own for own in self.given):
            return f"--set {field}"
        line = self._line(path)
        return f"{self.path}:{line}: {field}" if field else f"{self.path}:{line}"

    def _line(self, path: Path_) -> int:
        line, known = 1, Path_()
        for part in path:
            candidates = ((*known, part), (*known, str(part)))
            found = next((c for c in candidates if c in self.lines), None)
            if found is None:
                break
            known, line = found, self.lines[found]
        return line


def read_yaml(path: Path) -> YamlFile:
    """The file at ``path``. Raises JobError (missing, unreadable, not YAML, not a mapping, a key given twice)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError("no such file", where=str(path), hint=_neighbours(path)) from None
    except OSError as error:
        raise JobError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except ValueError as error:  # not UTF-8, or a NUL in the path
        raise JobError(f"cannot be read: {error}", where=str(path)) from error
    lines: dict[Path_, int] = {}
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            _collect(node, (), lines, path, frozenset())
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        problem, line = _problem(error)
        raise JobError(
            f"is not valid YAML: {problem}", where=f"{path}:{line}", hint="Check indents and colons."
        ) from error
    except RecursionError as error:
        raise JobError("is nested too deep", where=str(path)) from error
    if not isinstance(data, dict):
        raise JobError("must be a mapping of fields", where=f"{path}:1", hint="See jobs/quickstart.yaml for the form.")
    return YamlFile(path, data, lines)


def yaml_value(text: str, where: str) -> Any:
    """One value written as YAML. Raises JobError at ``where``."""
    try:
        _collect(yaml.compose(text, Loader=_Loader) or yaml.ScalarNode("", ""), (), {}, Path(where), frozenset())
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        problem = _problem(error)[0] if isinstance(error, yaml.YAMLError) else "nested too deep"
        raise JobError(
            f"'{printable(text, 80)}' is not a YAML value: {problem}", where=where, hint="Quote it."
        ) from error


def _problem(error: yaml.YAMLError) -> tuple[str, int]:
    """What is wrong, and the line."""
    mark = getattr(error, "problem_mark", None)
    return getattr(error, "problem", None) or str(error).split("\n")[0], mark.line + 1 if mark else 1


def _neighbours(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    found = sorted(p.name for p in folder.glob("*.yaml"))[:8]
    return f"YAML files in {folder}: {', '.join(printable(f) for f in found)}." if found else ""


def _collect(node: yaml.Node, prefix: Path_, lines: dict[Path_, int], path: Path, above: frozenset[int]) -> None:
    """Note the lines of all that stands below ``node``; ``above`` are the nodes it stands in."""
    if isinstance(node, yaml.ScalarNode):
        return
    here = node.start_mark.line + 1
    if id(node) in above:
        raise JobError("an alias stands inside of what it names", where=f"{path}:{here}")
    if len(lines) > MAX_PLACES:
        raise JobError(f"has more than {MAX_PLACES} fields once its aliases are filled in", where=f"{path}:{here}")
    above |= {id(node)}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise JobError("a field's name must be a plain text", where=f"{path}:{line}")
            name = (*prefix, key.value)
            if name in lines:
                raise JobError(f"field '{printable(key.value)}' is given twice", where=f"{path}:{line}")
            lines[name] = line
            _collect(value, name, lines, path, above)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            lines[(*prefix, i)] = item.start_mark.line + 1
            _collect(item, (*prefix, i), lines, path, above)
