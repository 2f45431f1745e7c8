"""Commands from functions whose parameters are dataclasses of options.

The only module that turns a field of options into a parameter of Typer. Must not know any command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from bricks.cli import completion
from bricks.studies.options import (
    Option,
    flag_of,
    group_of,
    kind_of,
    made,
    name_of,
    name_of_flag,
    option_of,
)


@dataclass(frozen=True, slots=True)
class TypedOption:
    """An option of a dataclass instance: its ``name`` without dashes, its value and default."""

    name: str
    value: Any
    default: Any

    @property
    def words(self) -> list[str]:
        """The option as a person types it; none if its value is the default."""
        if self.value is None or self.value == self.default:
            return []
        flag = f"--{self.name}"
        if isinstance(self.value, bool):
            return [flag]
        values = self.value if isinstance(self.value, list) else [self.value]
        return [word for value in values for word in (flag, str(value))]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Let Typer see the fields of the dataclasses that ``function`` takes, one by one.

    A parameter that is no dataclass, such as Typer's context, is passed on unchanged. An option
    that several dataclasses have belongs to the last of them; in the others it keeps its default.
    """
    hints = get_type_hints(function, include_extras=True)
    own = {
        name: [*parameters_of(hints[name])]
        if is_dataclass(hints[name])
        else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])]
        for name, parameter in inspect.signature(function).parameters.items()
    }
    owner = {option.name: name for name, options in own.items() for option in options}
    parameters = [
        option for name, options in own.items() for option in options if owner[option.name] == name
    ]

    def called(**values: Any) -> None:
        arguments = {}
        for name, kind in hints.items():
            mine = {option: value for option, value in values.items() if owner[option] == name}
            if name in own:
                arguments[name] = made(kind, mine) if is_dataclass(kind) else values[name]
        function(**arguments)

    return with_signature(called, function.__name__, function.__doc__, parameters)


def with_signature(
    called: Callable[..., None],
    name: str,
    doc: str | None,
    parameters: Collection[inspect.Parameter],
) -> Callable[..., None]:
    """``called`` with the name, help text and parameters that Typer reads."""
    called.__name__, called.__doc__ = name, doc
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]  # read by inspect
    return called


def parameters_of(
    options: Any, *, without: Collection[str] = (), defaults: Mapping[str, Any] | None = None
) -> Iterator[inspect.Parameter]:
    """A parameter for each option of the dataclass ``options``, groups of options one by one.

    Options whose names are in ``without`` are left out; ``defaults`` replace those of the fields.
    """
    for field in fields(options):
        if (group := group_of(options, field)) is not None:
            yield from parameters_of(group, without=without, defaults=defaults)
        elif (described := option_of(field)) is not None:
            name = name_of(field, described)
            if name not in without:
                default = (defaults or {}).get(name, _default(field))
                yield _parameter(name, kind_of(options, field), described, default)
                if described.formerly is not None:
                    yield _hidden(described, kind_of(options, field))


def typed_options(options: Any) -> Iterator[TypedOption]:
    """Every option of an instance of a dataclass of options; arguments are left out."""
    for field in fields(options):
        value, described = getattr(options, field.name), option_of(field)
        if described is not None and not described.argument:
            name = name_of(field, described).replace("_", "-")
            yield TypedOption(name, value, _default(field))
        elif described is None and is_dataclass(value):
            yield from typed_options(value)


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default


def _parameter(name: str, kind: Any, described: Option, default: Any) -> inspect.Parameter:
    if described.written is not str:
        kind = described.written
    if described.read is not None and default is not inspect.Parameter.empty:
        # A command has the text, the library its value; without a text the field's default stays.
        kind, default = described.written | None, None
    facts: dict[str, Any] = {
        "metavar": described.metavar, "help": described.help, "min": described.least,
        "max": described.most, "show_default": described.shown,
        "autocompletion": _completer(described), "rich_help_panel": described.group,
        "envvar": described.variable, "callback": described.check,
    }  # fmt: skip
    flags = [flag_of(name), *([] if described.short is None else [described.short])]
    typed = typer.Argument(**facts) if described.argument else typer.Option(*flags, **facts)
    annotation, keyword = Annotated[kind, typed], inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _hidden(described: Option, kind: Any) -> inspect.Parameter:
    """The parameter of an option's earlier flag, which neither help nor completion shows."""
    assert described.formerly is not None
    name = name_of_flag(described.formerly)
    kind = kind if described.read is None else described.written | None
    annotation = Annotated[kind, typer.Option(described.formerly, hidden=True)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _completer(of: Option) -> Any:
    if isinstance(of.values, str):
        return getattr(completion, of.values)
    return None if of.values is None else completion.values(of.values)
