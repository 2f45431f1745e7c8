"""What every source of models answers, how a model is to be read, and what came of it.

Must not know how any source reads its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bricks.errors import BricksError, UsageError
from bricks.sources.defaults import GRANULARITY, PROGRAMS_RUNTIME

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How models are to be read.

    ``batch``, ``shapes`` and ``values`` are those of :func:`bricks.reading.read.read_model`, and
    ``name`` takes the place of a model's own. ``granularity`` is how models will be cut, which a
    suite fixes. A program is recorded for ``runtime`` with ``threads``, from ``seed``.
    """

    batch: int | None = None
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    granularity: str = GRANULARITY
    runtime: str = PROGRAMS_RUNTIME
    threads: int = 1
    seed: int = 0

    def refuse_inputs(self, source: str) -> None:
        """:class:`UsageError` where shapes or values are given to a program, ``source``."""
        if self.shapes or self.values:
            raise UsageError(
                f"{source} makes its own inputs: leave out --shape, --value and --inputs, --batch"
                " is passed on"
            )


@dataclass(frozen=True, slots=True)
class Unread:
    """A model that could not be read, and why."""

    name: str
    cause: BricksError

    @property
    def error(self) -> str:
        """The cause in one line."""
        return str(self.cause)


@dataclass(frozen=True, slots=True)
class PrivateBricks:
    """What the private suite in ``file`` holds: bricks of models that it does not tell."""

    file: str
    bricks: tuple[Brick, ...]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What came of reading a model, and the ``word`` that names it alone on a command line.

    For models of a suite, ``word`` is the suite. ``adjustable`` says whether the reader may choose
    shapes and values of the model's inputs.
    """

    word: str
    found: Model | Unread | PrivateBricks
    adjustable: bool = False


class Source(Protocol):
    """Where models come from; ``word`` names it on a command line."""

    @property
    def word(self) -> str:
        """The word that names this source alone."""

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """Read its models one by one; what cannot be read does not stop the others.

        Raises :class:`UsageError` for options that do not go with this source.
        """


def attempted(
    word: str, name: str, read: Callable[[], Model], *, adjustable: bool = False
) -> ReadResult:
    """The model that ``read`` returns, or its error, under ``name``."""
    try:
        return ReadResult(word, read(), adjustable)
    except BricksError as error:
        return ReadResult(word, Unread(name, error), adjustable)
