"""The command of any study: options from its dataclass, one question, a table or JSON.

Must not know any study.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bricks.cli import completion
from bricks.cli.known import refuse_missing, warn_of
from bricks.cli.options import (
    Cache,
    EffortName,
    GranularityText,
    Json,
    Measuring,
    Optimization,
    Precision,
    RuntimeName,
    Seed,
    Threads,
    Timeout,
    open_workspace,
)
from bricks.cli.output import finish, print_json, remark, show
from bricks.cli.pages import check_page, write_page
from bricks.cli.progress import terminal_progress
from bricks.cli.verbosity import Quiet, Verbose
from bricks.cli.warnings import warn_of_crowding
from bricks.session.defaults import (
    CACHE,
    EFFORT,
    GRANULARITY,
    OPTIMIZATION,
    PRECISION,
    RUNTIME,
    TIMEOUT_S,
)
from bricks.studies.offer import StudyOffer
from bricks.studies.options import Option, option_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.session.workspace import Workspace

NoMeasure = Annotated[
    bool, typer.Option("--no-measure", help="Use what the cache holds; predict what it lacks.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Also run the real thing, and say how far off this is.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How any study measures, and what it prints."""

    no_measure: NoMeasure = False
    runtime: RuntimeName = RUNTIME
    threads: Threads = None
    seed: Seed = 0
    precision: Precision = PRECISION
    timeout: Timeout = TIMEOUT_S
    json: Json = False
    cache: Cache = CACHE
    quiet: Quiet = False
    verbose: Verbose = False
    granularity: GranularityText = GRANULARITY
    optimization: Optimization = OPTIMIZATION
    effort: EffortName = EFFORT


# Settings of studies of models: how these are cut and optimised, and which bricks are measured.
_OF_MODELS = frozenset({"granularity", "optimization", "effort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that shows an answer; ``name`` is that of its option, ``fact`` its name in JSON.

    ``text`` makes its content of the result; ``told`` says what it shows and what opens it. A
    ``page`` needs the report's libraries.
    """

    name: str
    fact: str
    metavar: str
    help: str
    text: Callable[[Any], str]
    told: str
    page: bool = True


def _plain_parts(result: Any) -> Sequence[RenderableType]:
    from bricks.report.study import study_parts

    return study_parts(result)


@dataclass(frozen=True, slots=True)
class View:
    """How an answer is shown: ``parts`` for a terminal, and ``files``."""

    parts: Callable[[Any], Sequence[RenderableType]] = _plain_parts
    files: tuple[File, ...] = ()


def command_of(offer: StudyOffer, view: View | None = None) -> Callable[..., None]:
    """The command that asks ``offer``, for Typer; without a ``view``, any answer can be shown."""
    view = View() if view is None else view
    parameters = [*_own(offer.options), *map(_of_file, view.files), *_shared(offer)]

    def called(**words: Any) -> None:
        files = {file: words.pop(file.name) for file in view.files}
        check = offer.checks and words.pop("check")
        given = {name: words.pop(name) for name in _settings(offer)}
        options = _made(offer.options, words)
        if given["threads"] is None:
            given["threads"] = offer.threads(options)
        _answer(offer, view, options, Settings(**given), files, check=check)

    called.__name__, called.__doc__ = offer.name, offer.help
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return called


def _answer(
    offer: StudyOffer,
    view: View,
    options: Any,
    settings: Settings,
    files: Mapping[File, Path | None],
    *,
    check: bool,
) -> None:
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    for file, path in files.items():
        if file.page and path is not None:
            check_page(path)
    if offer.needs_cache(options):
        refuse_missing(settings.cache)
    models = [options.model] if offer.of_models else None
    with _opened(settings) if models is None else _with_models(settings, models) as workspace:
        study = offer.load()(options, workspace, remark)
        warn_of_crowding(study.target, 1)
        result = ask(study, measure=not settings.no_measure, check=check)
    errors = [error for file, path in files.items() if (error := _written(file, path, result))]
    if settings.json:
        places = {file.fact: None if at is None else str(at) for file, at in files.items()}
        print_json(json_of(result) | places)
    else:
        show(*view.parts(result))
        written = [f"{at}: {file.told}" for file, at in files.items() if at is not None]
        show(*(["", *written] if written else []))
    finish([*result.errors, *errors])


@contextmanager
def _opened(settings: Settings) -> Iterator[Workspace]:
    from bricks.measure.conditions import Conditions
    from bricks.measure.rounds import StopRule
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace

    rule = StopRule(precision=settings.precision)
    options = Options(
        runtime=settings.runtime, threads=settings.threads, seed=settings.seed,
        conditions=Conditions(rule=rule, timeout_s=settings.timeout),
    )  # fmt: skip
    with (
        terminal_progress() as progress,
        Workspace.open(settings.cache, options, progress=progress) as opened,
    ):
        yield opened
        warn_of(opened.published)


@contextmanager
def _with_models(settings: Settings, models: list[str]) -> Iterator[Workspace]:
    """As commands about ``models`` open it: the runtime is one that runs them."""
    given = {field.name: getattr(settings, field.name) for field in fields(Settings)}
    del given["no_measure"]
    with open_workspace(Measuring(models=models, **given)) as opened:
        yield opened


def _written(file: File, path: Path | None, result: Any) -> str | None:
    """Write a file, if one is wanted; the line of what went wrong."""
    text = file.text(result) if path is not None else ""
    if path is None or not text:
        return None
    if file.page:
        write_page(path, text)
        return None
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        return f"{path} cannot be written ({exc.strerror}): give --{file.name} another file"
    return None


def _shared(offer: StudyOffer) -> Iterator[inspect.Parameter]:
    if offer.checks:
        yield _parameter("check", Check, False)
    hints = get_type_hints(Settings, include_extras=True)
    defaults = {field.name: field.default for field in fields(Settings)}
    for name in _settings(offer):
        default = offer.runtime if name == "runtime" else defaults[name]
        yield _parameter(name, hints[name], default)


def _settings(offer: StudyOffer) -> list[str]:
    without = offer.without if offer.of_models else offer.without | _OF_MODELS
    return [field.name for field in fields(Settings) if field.name not in without]


def _of_file(file: File) -> inspect.Parameter:
    described = typer.Option(metavar=file.metavar, help=file.help, show_default=False)
    return _parameter(file.name, Annotated[Path | None, described], None)


def _own(options: type) -> Iterator[inspect.Parameter]:
    """A parameter for each field that is described, groups of fields one by one."""
    for field in fields(options):
        if (group := _group(field)) is not None:
            yield from _own(group)
        elif (described := option_of(field)) is not None:
            yield _of_field(field, _kind(options, field), described)


def _group(field: Field[Any]) -> type | None:
    """The dataclass of a field that is a group of options."""
    made: Any = field.default_factory
    return made if isinstance(made, type) and is_dataclass(made) else None


def _kind(options: type, field: Field[Any]) -> Any:
    """The type of a field; others may have types that only type checkers import."""
    alone = {"__annotations__": {field.name: field.type}, "__module__": options.__module__}
    return get_type_hints(type("Alone", (), alone))[field.name]


def _of_field(field: Field[Any], kind: Any, described: Option) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    if described.read is not None or described.written is not str:
        # A command has what is written, the library what that means.
        kind = described.written if default is not None else described.written | None
        if default is not None and isinstance(described.shown, str):
            default = described.shown
    shown = described.shown if described.read is None or default is None else True
    return _parameter(field.name, Annotated[kind, _typer_option(described, shown)], default)


def _typer_option(of: Option, shown: str | bool) -> Any:
    told: dict[str, Any] = {
        "metavar": of.metavar, "help": of.help, "min": of.least, "max": of.most,
        "show_default": shown, "autocompletion": _completer(of),
        "rich_help_panel": of.group,
    }  # fmt: skip
    make: Any = typer.Argument if of.argument else typer.Option
    return make(*([] if of.flag is None else [of.flag]), **told)


def _completer(of: Option) -> Any:
    if isinstance(of.values, str):
        return getattr(completion, of.values)
    return None if of.values is None else completion.values(of.values)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _made(options: type, words: Mapping[str, Any]) -> Any:
    """The options that were written, each read into what it means."""
    found: dict[str, Any] = {}
    for field in fields(options):
        if (group := _group(field)) is not None:
            found[field.name] = _made(group, words)
        elif (described := option_of(field)) is not None:
            found[field.name] = _read(field.name, described, words[field.name])
    return options(**found)


def _read(name: str, described: Option, word: Any) -> Any:
    if described.read is None or word is None:
        return word
    return described.read(described.flag or f"--{name.replace('_', '-')}", word)
