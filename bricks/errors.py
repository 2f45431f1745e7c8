r"""What can go wrong, as one tree.

    BricksError
    ├── UsageError      the caller asked for something that cannot be meant (exit status 2)
    ├── ModelError      a model cannot be read, or is not valid
    │   └── ShapeError  a dimension is open, or a shape option does not fit the model
    ├── BackendError    a runtime is missing, or refuses what it was given
    ├── WorkerError     the measuring process did not do what it was asked
    ├── StoreError      the cache cannot be read or written
    ├── SuiteError      a suite cannot be written, or is not to be trusted
    └── FleetError      hosts that should measure together cannot be reached, or do not work

Every message is one line that says what happened, to which object, and what to do. Models name
things as they like, and messages name them: what no terminal should see is written out as
``\x1b``, and a very long message loses its middle.
Errors of third parties are translated once, where they enter, with ``raise … from``.
"""

from collections.abc import Iterable

# A message keeps this much of its beginning and of its end: what happened, and what to do.
_BEGINNING, _END = 700, 300

# A message names all there is, up to so many.
_MAX_NAMED = 20


class BricksError(Exception):
    """Base of every error that this package raises on purpose; its text is one printable line."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UsageError(BricksError):
    """The caller asked for something that cannot be meant."""


class ModelError(BricksError):
    """A model cannot be read, or is not a valid model."""


class ShapeError(ModelError):
    """A dimension is open, or a shape option does not fit the model."""


class BackendError(BricksError):
    """A runtime is missing, or refuses what it was given."""


class WorkerError(BricksError):
    """The measuring process did not do what it was asked."""


class StoreError(BricksError):
    """The cache cannot be read or written."""


class SuiteError(BricksError):
    """A suite cannot be written, or is not to be trusted."""


class FleetError(BricksError):
    """Hosts that should measure together cannot be reached, or do not work together."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """That of the ``known`` names which ``name`` is most likely meant to be, if any is."""
    from difflib import get_close_matches  # here, since most runs have no error to tell

    spelt = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelt, n=1)
    return spelt[close[0]] if close else None


def suggestion(name: str, known: Iterable[str], otherwise: str = "choose one of") -> str:
    """What to do about a ``name`` that is not ``known``: a question, or all that there is."""
    names = list(dict.fromkeys(known))
    meant = nearest(name, names)
    if meant is not None:
        return f"did you mean {meant}?"
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{otherwise} {', '.join(names[:_MAX_NAMED])}{more}"


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

    These are escape sequences, changes of the writing direction, and what is no character at all.
    """
    return text if text.isprintable() else "".join(map(_spelt, text))


def _spelt(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode("ascii")
