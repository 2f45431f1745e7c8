"""How much a command says besides its results and errors: ``--quiet``, ``--verbose``, or neither.

Chosen once for a whole run, by the program's options or by a command's own, and asked by whatever
would print: progress, remarks, and what the library logs of its work (loggers ``bricks.*``, level
INFO). Must not know what is said.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.errors import one_line

if TYPE_CHECKING:
    import logging

_LOGGER = "bricks"


class Verbosity(Enum):
    """How much is said."""

    QUIET = "--quiet"
    USUAL = ""
    VERBOSE = "--verbose"


# One for the process, not for a thread: threads speak for the command that has started them.
_chosen = Verbosity.USUAL
_handler: logging.Handler | None = None


def verbosity() -> Verbosity:
    """How much the running command says."""
    return _chosen


@contextmanager
def usual() -> Iterator[None]:
    """Nothing is chosen at first; nor is it afterwards, whatever options said meanwhile."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _choose(wanted: Verbosity) -> Callable[[bool], bool]:
    """What the option does that is called like this voice."""

    def choose(asked: bool) -> bool:
        global _chosen
        if asked and _chosen not in (wanted, Verbosity.USUAL):
            raise typer.BadParameter(f"says the opposite of {_chosen.value}: leave one out")
        if asked:
            _chosen = wanted
            if wanted is Verbosity.VERBOSE:
                _listen()
        return asked

    return choose


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        callback=_choose(Verbosity.QUIET),
        help="Print results and errors alone: no progress, no remarks.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=_choose(Verbosity.VERBOSE),
        help="Say on standard error what is being done.",
    ),
]


def _listen() -> None:
    """Print what the library logs, a line each."""
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
        logger.propagate = False  # what others print of the root's is not told twice


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
