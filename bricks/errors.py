"""What can go wrong, as one tree.

    BricksError
    ├── UsageError      the caller asked for something that cannot be meant (exit status 2)
    ├── ModelError      a model cannot be read, or is not valid
    │   └── ShapeError  a dimension is open, or a shape option does not fit the model
    ├── BackendError    a runtime is missing, or refuses what it was given
    ├── WorkerError     the measuring process did not do what it was asked
    └── StoreError      the cache cannot be read or written

Every message is one line that says what happened, to which object, and what to do.
Errors of third parties are translated once, where they enter, with ``raise … from``.
"""


class BricksError(Exception):
    """Base of every error that this package raises on purpose."""


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


def first_line(error: BaseException, limit: int = 300) -> str:
    """The message of ``error`` as one line of at most ``limit`` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
