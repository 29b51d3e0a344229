"""Log lines: JSON, one object a line, in the run folder; plain on a terminal's error stream where asked for."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import orjson

from dialoom.text import printable, storable


class JsonLines(logging.Formatter):
    """``{"at", "level", "logger", "message"}`` and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage(), 4000),
        }
        if record.exc_info:
            line["traceback"] = storable(self.formatException(record.exc_info))
        return orjson.dumps(line).decode()


def log_to(path: Path) -> logging.Handler:
    """Append dialoom's log lines to ``path`` from now on; a file that cannot be written is done without."""
    handler: logging.Handler
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(JsonLines())
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk must not end the run here
    logger = logging.getLogger("dialoom")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler
