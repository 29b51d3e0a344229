"""The command ``dialoom``. Nothing heavy is imported before a command needs it: ``--help`` answers at once."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dialoom.cli import bench, calls, check, compare, data, results, runs, study

if TYPE_CHECKING:
    from dialoom.errors import DialoomError

app = typer.Typer(
    name="dialoom",
    help="Runs many dialogues through language-model methods, keeps every step, scores as the published evaluators do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (runs, results, compare, study, calls, data, check, bench):
    module.register(app)


def main() -> None:
    """Entry point: an error on purpose is two lines; an unexpected one leaves its traceback in a file."""
    from dialoom.errors import DialoomError

    try:
        app()
    except DialoomError as error:
        refuse(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a person must never meet a bare traceback
        if isinstance(error, OSError) and error.filename:  # a file named on the command line
            refuse(DialoomError(error.strerror or str(error), where=str(error.filename), hint="Check the path."))
        handle, name = tempfile.mkstemp(prefix="dialoom-error-", suffix=".txt")
        os.close(handle)
        Path(name).write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
        print(f"error: unexpected {type(error).__name__}: {str(error)[:300]!r}", file=sys.stderr)
        print(f"This is a fault of dialoom. Details: {name}", file=sys.stderr)
        sys.exit(70)


def refuse(error: DialoomError) -> NoReturn:
    """Show an error on purpose and leave."""
    from dialoom.cli.terminal import show_error

    show_error(error)
    sys.exit(2)


if __name__ == "__main__":
    main()
