"""Where the command-line tool prints, and how it fails: one line on stderr, an exit status, no traceback."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from .errors import UserError

WIDTH_OF_LOGS = 110
"""columns when nobody says how wide the output is (a file, a pipe, a CI log)"""


def get_console(stderr: bool = False) -> Console:
    """A console as wide as the terminal, or as a readable log."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_LOGS
    return console


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the errors that a user can act on into one line, and being told to stop into a clean end.

    SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that a server started by us is ended by us.
    """
    for name in ("SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        yield
    except UserError as exc:
        fail(str(exc), exc.status)
    except KeyboardInterrupt:
        fail("interrupted; nothing is left running", 130)
    except BrokenPipeError:  # the reader of our output went away (`flo diff 01 02 | head`)
        with suppress(OSError):
            sys.stdout.close()
        sys.exit(141)


def fail(message: str, status: int) -> None:
    """Say why, and exit."""
    get_console(stderr=True).print(f"flo: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(status)
