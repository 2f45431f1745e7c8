"""Options as fields of dataclasses, described once for library, command line and help.

A field whose type is a dataclass is a group of options. Commands and pages of a server read the
options of a dataclass from here, and make an instance of it from typed values. Must not know how a
command parses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from bricks.errors import UsageError

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """The description of an option on a command line; ``help`` is one or two sentences.

    ``flag`` is its name, by default ``--`` and the name of its field; an ``argument`` has no flag.
    ``short`` is a flag of one letter, ``variable`` an environment variable that replaces the
    default. ``least`` and ``most`` limit a number. ``read`` parses the typed value, which has the
    type ``written``: it gets the flag and the value, and raises
    :class:`~bricks.errors.UsageError`. ``check`` gets the value too, and returns or refuses it.
    ``shown`` is the default as text, False to show none. ``values`` are those that completion
    offers, with a description of each, or the name of a function in ``cli/completion.py``.
    ``group`` is the title of the options' section in the help. ``formerly`` is a hidden flag of the
    same meaning: an earlier name.
    """

    help: str
    flag: str | None = None
    argument: bool = False
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    read: Callable[[str, Any], Any] | None = None
    written: Any = str
    shown: str | bool = True
    values: Mapping[str, str] | str | None = None
    group: str | None = None
    short: str | None = None
    formerly: str | None = None
    variable: str | None = None
    check: Callable[[Any], Any] | None = None


def argument(help: str, *, default: Any = MISSING, **described: Any) -> Any:
    """A field that is an argument of the command; ``described`` are fields of :class:`Option`."""
    return field(default=default, metadata={_KEY: Option(help, argument=True, **described)})


def option(help: str, *, default: Any = MISSING, **described: Any) -> Any:
    """A field that is an option of the command; ``described`` are fields of :class:`Option`."""
    return field(default=default, metadata={_KEY: Option(help, **described)})


def option_of(of: Field[Any]) -> Option | None:
    """The description of a field; None for a field that only the library takes."""
    described: Option | None = of.metadata.get(_KEY)
    return described


def batch_option() -> Any:
    """The field of the number of samples; None: the program's own."""
    from bricks.graph.types import LARGEST_DIM

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


def system_option(
    help: str = "A known system ('bricks systems') in place of this host.", **described: Any
) -> Any:
    """The field of the system that is asked about; None: this host."""
    return option(
        help, default=None, metavar="SYSTEM", values="systems", flag="--on", formerly="--system",
        **described,
    )  # fmt: skip


def systems_option(help: str, metavar: str = "SYSTEM,…") -> Any:
    """The field of several systems, whose names are separated by commas; None: not given."""
    return option(
        help, default=None, metavar=metavar, values="systems", flag="--on", formerly="--system",
        written=list[str], read=_names,
    )  # fmt: skip


def _names(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The names in ``texts``, each once: the option may be repeated."""
    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} {','.join(texts)}: a name is empty")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option of a dataclass: its ``name`` without dashes, its type and its default.

    ``default`` is ``dataclasses.MISSING`` for an option that must be given.
    """

    name: str
    kind: Any
    option: Option
    default: Any


def option_fields(options: Any) -> Iterator[OptionField]:
    """The options of the dataclass ``options``, groups of options one by one."""
    for each in fields(options):
        if (group := group_of(options, each)) is not None:
            yield from option_fields(group)
        elif (described := option_of(each)) is not None:
            name = name_of(each, described)
            yield OptionField(name, kind_of(options, each), described, each.default)


def made(options: Any, values: Mapping[str, Any]) -> Any:
    """Make an instance of the dataclass ``options`` from typed ``values``, by names of options.

    Texts are read into values; fields without a value keep their default.
    """
    arguments: dict[str, Any] = {}
    for each in fields(options):
        if (group := group_of(options, each)) is not None:
            arguments[each.name] = made(group, values)
        elif (described := option_of(each)) is not None:
            if (value := _value(name_of(each, described), described, values)) is not MISSING:
                arguments[each.name] = value
    return options(**arguments)


def _value(name: str, described: Option, values: Mapping[str, Any]) -> Any:
    """The value of an option, by its own flag or an earlier one; ``MISSING`` keeps the default."""
    typed = values.get(name, MISSING)
    if described.formerly is not None and not typed:
        typed = values.get(name_of_flag(described.formerly)) or typed
    if described.read is None or typed is MISSING:
        return typed
    return MISSING if typed in (None, []) else described.read(flag_of(name), typed)


def group_of(options: Any, field: Field[Any]) -> Any:
    """The dataclass of a field that is a group of options; None for an option."""
    if option_of(field) is not None:
        return None
    factory: Any = field.default_factory
    if factory is not MISSING:
        return factory if is_dataclass(factory) else None
    kind = kind_of(options, field) if field.default is MISSING else None
    return kind if is_dataclass(kind) else None


@cache
def kind_of(options: Any, field: Field[Any]) -> Any:
    """The type of one field; other fields may have types that only type checkers import."""
    owner = next(of for of in options.__mro__ if field.name in vars(of).get("__annotations__", ()))
    single = {"__annotations__": {field.name: field.type}, "__module__": owner.__module__}
    return get_type_hints(type("Single", (), single))[field.name]


def name_of(field: Field[Any], described: Option) -> str:
    """The name of an option: that of its flag without dashes, or of its field."""
    return name_of_flag(described.flag or field.name)


def name_of_flag(flag: str) -> str:
    """``--step-cost`` as ``step_cost``."""
    return flag.removeprefix("--").replace("-", "_")


def flag_of(name: str) -> str:
    """``step_cost`` as ``--step-cost``."""
    return f"--{name.replace('_', '-')}"
