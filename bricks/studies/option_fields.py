"""Fields of dataclasses of options: their names and types, and instances from typed values.

Here because commands and pages of a server read the same options. Must not know how a value was
typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from bricks.studies.options import Option, option_of


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
    for field in fields(options):
        if (group := group_of(options, field)) is not None:
            yield from option_fields(group)
        elif (described := option_of(field)) is not None:
            name = name_of(field, described)
            yield OptionField(name, kind_of(options, field), described, field.default)


def made(options: Any, values: Mapping[str, Any]) -> Any:
    """Make an instance of the dataclass ``options`` from typed ``values``, by names of options.

    Texts are read into values; fields without a value keep their default.
    """
    arguments: dict[str, Any] = {}
    for field in fields(options):
        if (group := group_of(options, field)) is not None:
            arguments[field.name] = made(group, values)
        elif (described := option_of(field)) is not None:
            if (value := _value(name_of(field, described), described, values)) is not MISSING:
                arguments[field.name] = value
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
