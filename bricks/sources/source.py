"""The interface of model sources, the options of reading with their defaults, and its results.

Must not know how any source reads its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bricks.backends import default
from bricks.errors import BricksError, UsageError, suggestion
from bricks.graph.form import ModelForm
from bricks.system.accelerator import CPU

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model

GRANULARITY = "executed"
PROGRAMS_RUNTIME = default(ModelForm.PROGRAMS)  # of programs, unless another one is named

# The forms of numbers that models are quantised to; by default they stay as they are.
UNQUANTIZED, INT8 = "none", "int8"
QUANTIZE = (UNQUANTIZED, INT8)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of reading models.

    ``batch``, ``shapes`` and ``values`` are parameters of :func:`bricks.reading.read.read_model`;
    ``name`` replaces a model's own name. ``granularity`` is how models will be cut, and must be the
    granularity of a suite. A program is recorded for ``runtime`` on ``device``
    with ``threads``, from ``seed``, in the user's ``python``.
    ``quantize`` is ``int8`` for models that the tool of a runtime quantises.
    """

    batch: int | None = None
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    granularity: str = GRANULARITY
    runtime: str = PROGRAMS_RUNTIME
    threads: int = 1
    device: str = CPU
    python: str | None = None
    seed: int = 0
    quantize: str = UNQUANTIZED

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for a form that no tool quantises to."""
        if self.quantize not in QUANTIZE:
            meant = suggestion(self.quantize, QUANTIZE)
            raise UsageError(f"--quantize {self.quantize}: no model is quantised to that: {meant}")

    def refuse_inputs(self, source: str) -> None:
        """Raise :class:`UsageError` for shapes or values, if ``source`` is a program."""
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
    """The bricks of the private suite in ``file``, whose models are unknown."""

    file: str
    bricks: tuple[Brick, ...]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading a model, and the ``word`` that names it on a command line.

    For models of a suite, ``word`` is the suite. ``adjustable`` says whether the reader may choose
    shapes and values of the model's inputs. ``note`` says how the model was changed, None for one
    that was not.
    """

    word: str
    content: Model | Unread | PrivateBricks
    adjustable: bool = False
    note: str | None = None


class Source(Protocol):
    """A source of models; ``word`` names it on a command line."""

    @property
    def word(self) -> str:
        """The command-line word that names this source."""

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """Read its models one by one; a model that cannot be read does not stop the others.

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
