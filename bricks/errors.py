r"""The errors of this package, as one tree.

    BricksError
    ├── UsageError      the caller gave invalid arguments (exit status 2)
    │   └── NameUnknown  a name that nothing has, or several things
    ├── ModelError      a model cannot be read, or is not valid
    │   └── ShapeError  a shape cannot be inferred, or a shape option does not fit the model
    │       └── OpenDimensions  inputs have open dimensions, and no option sets them
    ├── BackendError    a runtime is missing, or refuses its input
    ├── WorkerError     the measuring process failed to carry out a request
    ├── StoreError      the cache cannot be read or written
    │   ├── CacheDamaged  what the cache holds is damaged
    │   ├── CacheLocked   another process is writing to the cache: try again when it has ended
    │   └── DiskFull      there is no space to write to the cache
    ├── SuiteError      a suite cannot be written, or cannot be trusted
    └── FleetError      hosts of a fleet cannot be reached, or fail

Every message is one line that names the problem, the object, and the remedy. Messages contain names
from models, which may be arbitrary: control characters are written out as ``\x1b``, and a very long
message loses its middle.
Errors of third-party libraries are converted once, where they enter, with ``raise … from``.
Here because every package raises them. Must not know who raises or shows them.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence

# A message keeps this much of its beginning (the problem) and of its end (the remedy).
_BEGINNING, _END = 700, 300

# A message lists all known names, up to this many.
_MAX_NAMED = 20


class BricksError(Exception):
    """Base of every error that this package raises on purpose; its text is one printable line."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UsageError(BricksError):
    """The caller gave invalid arguments."""


class NameUnknown(UsageError):
    """A name that nothing has, or several things; the message says which names there are."""


class ModelError(BricksError):
    """A model cannot be read, or is not a valid model."""


class ShapeError(ModelError):
    """A shape cannot be inferred, or a shape option does not fit the model."""


class OpenDimensions(ShapeError):
    """Inputs have open dimensions; ``options``, if any, are options that would set them.

    ``dims`` are the dimensions of each named input: sizes, and symbols of open ones ("" without a
    symbol); ``examples`` are usual sizes. Both are empty if an input has no rank or no name.
    """

    def __init__(
        self,
        problem: str,
        options: Sequence[str],
        dims: Mapping[str, Sequence[int | str]] | None = None,
        examples: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        super().__init__(
            f"{problem}: give {shlex.join(options)}, or other sizes" if options else problem
        )
        self.problem, self.options = problem, tuple(options)
        self.dims, self.examples = dims or {}, examples or {}

    @property
    def batch_axis(self) -> str | None:
        """The symbol of the batch, "" without one; None if other dimensions are open too."""
        if self.options != ("--batch", "1"):
            return None
        firsts = (dims[0] for dims in self.dims.values() if dims)
        return next((dim for dim in firsts if isinstance(dim, str)), "")


class BackendError(BricksError):
    """A runtime is missing, or refuses its input."""


class WorkerError(BricksError):
    """The measuring process failed to carry out a request."""


class StoreError(BricksError):
    """The cache cannot be read or written."""


class CacheDamaged(StoreError):
    """What the cache holds is damaged; ``bricks cache verify`` lists all that is."""


class CacheLocked(StoreError):
    """Another process is writing to the cache; the same call works when it has ended."""


class DiskFull(StoreError):
    """There is no space to write to the cache; what it held before is kept."""


class SuiteError(BricksError):
    """A suite cannot be written, or cannot be trusted."""


class FleetError(BricksError):
    """Hosts of a fleet cannot be reached, or fail to work together."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The ``known`` name most similar to ``name``; None if none is similar."""
    from difflib import get_close_matches  # here, since most runs have no error to report

    spelt = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelt, n=1)
    return spelt[close[0]] if close else None


def suggestion(name: str, known: Iterable[str], otherwise: str = "choose one of") -> str:
    """The remedy for a ``name`` that is not ``known``: a question, or the list of all names."""
    names = list(dict.fromkeys(known))
    meant = nearest(name, names)
    if meant is not None:
        return f"did you mean {meant}?"
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{otherwise} {', '.join(names[:_MAX_NAMED])}{more}"


def later_format(path: object, version: int, known: int) -> str:
    """The message about a file whose format has a later version than the ``known`` one."""
    return (
        f"{path} has version {version} of its format, and this package reads up to {known}: update"
        " bricks"
    )


def first_line(error: BaseException, limit: int = 300) -> str:
    """The message of ``error`` as one line of at most ``limit`` characters."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str) -> str:
    """``text`` made :func:`printable`, and not much longer than 1000 characters."""
    if len(text) > _BEGINNING + _END:
        text = f"{text[:_BEGINNING]} … {text[-_END:]}"
    return printable(text)


def printable(text: str) -> str:
    """``text`` without line breaks, and with control characters written out.

    Control characters include escape sequences, changes of the writing direction, and invalid
    characters.
    """
    return text if text.isprintable() else "".join(map(_spelt, text))


def _spelt(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode("ascii")
