"""The verbosity of a command: ``--quiet``, ``--verbose`` or neither.

Chosen once for a whole run, by the program's options or by a command's own. Progress, remarks, and
the output of the library's loggers (``bricks.*``, level INFO) depend on it. Must not know the
messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import typer

from bricks.errors import one_line
from bricks.studies.options import option

if TYPE_CHECKING:
    import logging

_LOGGER = "bricks"


class Verbosity(Enum):
    """How much is printed."""

    QUIET = "--quiet"
    USUAL = ""
    VERBOSE = "--verbose"


# One for the process, not for a thread: threads print for the command that started them.
_chosen = Verbosity.USUAL
_handler: logging.Handler | None = None


def verbosity() -> Verbosity:
    """The verbosity of the running command."""
    return _chosen


@contextmanager
def usual() -> Iterator[None]:
    """Reset the verbosity before and after a run."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _choosing(level: Verbosity) -> Callable[[bool], bool]:
    """The callback of the flag that chooses the verbosity ``level``."""

    def choose(flag: bool) -> bool:
        global _chosen
        if flag and _chosen not in (level, Verbosity.USUAL):
            raise typer.BadParameter(f"says the opposite of {_chosen.value}: leave one out")
        if flag:
            _chosen = level
            if level is Verbosity.VERBOSE:
                _listen()
        return flag

    return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbosityOptions:
    """How much is printed besides results; parsing sets the verbosity of the process."""

    quiet: bool = option(
        "Print results and errors alone: no progress, no remarks.",
        default=False, short="-q", check=_choosing(Verbosity.QUIET),
    )  # fmt: skip
    verbose: bool = option(
        "Say on standard error what is being done.",
        default=False, short="-v", check=_choosing(Verbosity.VERBOSE),
    )  # fmt: skip


def _listen() -> None:
    """Print the library's log messages, a line each."""
    import logging  # here, since most runs need none

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"bricks: {one_line(record.getMessage())}", file=sys.stderr)

    global _handler
    if _handler is None:
        _handler = Lines(logging.INFO)
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(_handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # otherwise handlers of the root logger would print them again


def _forget() -> None:
    global _chosen, _handler
    _chosen = Verbosity.USUAL
    if _handler is not None:
        import logging

        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(_handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
        _handler = None
