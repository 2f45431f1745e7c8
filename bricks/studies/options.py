"""Fields of the options of a study, described once for the library, its command and its help.

Fields that are dataclasses themselves are groups of options. Must not know how a command reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """How an option is written.

    ``flag`` is its name on a command line, by default ``--`` and the name of its field;
    ``argument`` says that it has none. ``least`` and ``most`` limit numbers. ``read`` makes its
    value of the flag and of what was ``written``, a text or number, and raises
    :class:`~bricks.errors.UsageError`; ``shown`` is how the default is written. ``values`` are
    those that can be completed, with a description of each, or the name of the list that has them.
    ``group`` is the title that it stands under, ``short`` a flag of one letter, and ``variable``
    the environment variable that replaces its default. ``check`` is called with its value, which it
    returns or refuses.
    """

    help: str
    flag: str | None = None
    argument: bool = False
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    read: Callable[[str, Any], Any] | None = None
    written: type = str
    shown: str | bool = True
    values: Mapping[str, str] | str | None = None
    group: str | None = None
    short: str | None = None
    variable: str | None = None
    check: Callable[[Any], Any] | None = None


def argument(help: str, *, default: Any = MISSING, **described: Any) -> Any:
    """A field that a command takes without a flag; the rest as in :class:`Option`."""
    return field(default=default, metadata={_KEY: Option(help, argument=True, **described)})


def option(help: str, *, default: Any = MISSING, **described: Any) -> Any:
    """A field that a command takes as an option; the rest as in :class:`Option`."""
    return field(default=default, metadata={_KEY: Option(help, **described)})


def option_of(of: Field[Any]) -> Option | None:
    """How a field is written; None for one that only the library takes."""
    described: Option | None = of.metadata.get(_KEY)
    return described


def batch_option() -> Any:
    """The field of the number of samples; None: the program's own."""
    from bricks.graph.sizes import LARGEST_DIM

    return option(
        "Size of the first dimension of the models' inputs.",
        default=None, least=1, most=LARGEST_DIM, metavar="N", group="Models",
    )  # fmt: skip


def shape_option() -> Any:
    """The field of the shapes of inputs as texts; None: the model's own."""
    return option(
        "The shape of an input, ? for sizes that stay; may be repeated.",
        default=None, metavar="NAME=1x3x224x224", group="Models",
    )  # fmt: skip


def value_option() -> Any:
    """The field of the values of inputs as texts; None: synthetic ones."""
    return option(
        "What an input holds, where what is made up is not meant; may be repeated.",
        default=None, metavar="NAME=2,3|NAME=@FILE.npy", group="Models",
    )  # fmt: skip


def system_option() -> Any:
    """The field of the system that is asked about; None: this host."""
    return option(
        "A known system ('bricks systems') in place of this host.",
        default=None, metavar="NAME", values="systems",
    )  # fmt: skip
