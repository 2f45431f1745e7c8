"""The command of any study: options from its dataclass, one question, a table or JSON.

Must not know any study.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bricks.cli.command import parameters_of, with_signature
from bricks.cli.options import (
    CommonOptions,
    DetailOptions,
    GeneralOptions,
    MeasuringOptions,
    ModelOptions,
    RuntimeOptions,
    no_measure_option,
    seed_option,
)
from bricks.cli.output import (
    check_page,
    finish,
    note,
    print_json,
    show,
    show_answer,
    today,
    write_page,
)
from bricks.cli.reading import warn_of_crowding
from bricks.cli.workspaces import open_workspace, refuse_missing_cache
from bricks.report.study import StudyView, view_of_study
from bricks.studies.options import made, option
from bricks.studies.study import StudyOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """Whether the real thing is run next to its prediction."""

    check: bool = option("Also run the real thing, and say how far off this is.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """How the bricks of a study are measured, and how its answer is printed."""

    no_measure: bool = no_measure_option()
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    seed: int = seed_option()
    measuring: MeasuringOptions = field(default_factory=MeasuringOptions)
    general: GeneralOptions = field(default_factory=GeneralOptions)

    def common(self, models: Sequence[str]) -> CommonOptions:
        """These settings as options of a command about ``models``."""
        return CommonOptions(
            general=self.general,
            models=ModelOptions(words=list(models), seed=self.seed),
            runtime=self.runtime,
            measuring=self.measuring,
        )


# Settings that no study has, and those that only studies of models have.
_NEVER = frozenset({"budget", "retry", "again", "repeat_inputs"})
_OF_MODELS = frozenset({"granularity", "optimization", "effort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that shows an answer; ``name`` is that of its option, ``fact`` its name in JSON.

    ``text`` makes the content of the file from a result; ``note`` says what the file shows and what
    opens it. A ``page`` needs the report's libraries, and its ``text`` also gets the ``version`` of
    bricks and the date when it was ``made``.
    """

    name: str
    fact: str
    metavar: str
    help: str
    text: Callable[..., str]
    note: str
    page: bool = True

    def content(self, result: Any) -> str:
        """The content of the file; empty if the result has nothing to show."""
        if not self.page:
            return self.text(result)
        from bricks._version import __version__

        return self.text(result, version=__version__, made=today())


def command_of(offer: StudyOffer, files: Sequence[File] = ()) -> Callable[..., None]:
    """Return the command that asks the study ``offer`` and may write ``files``, for Typer.

    A study whose view has details has an option ``--all``, which shows them.
    """
    view = view_of_study(offer.name)
    parameters = [
        *parameters_of(offer.options),
        *map(_of_file, files),
        *(parameters_of(CheckOptions) if offer.checks else ()),
        *(parameters_of(DetailOptions) if view.details is not None else ()),
        *parameters_of(
            StudySettings,
            without=offer.without | _NEVER | (frozenset() if offer.of_models else _OF_MODELS),
            defaults=({} if offer.runtime is None else {"runtime": offer.runtime}),
        ),
    ]

    def called(**values: Any) -> None:
        options, settings = made(offer.options, values), made(StudySettings, values)
        if settings.runtime.threads is None:
            threads = offer.threads(options)
            settings = replace(settings, runtime=replace(settings.runtime, threads=threads))
        paths = {file: values[file.name] for file in files}
        check = offer.checks and values["check"]
        every = view.details is not None and made(DetailOptions, values).every
        _answer(offer, options, settings, view, paths, every=every, check=check)

    return with_signature(called, offer.name, offer.help, parameters)


def _answer(
    offer: StudyOffer,
    options: Any,
    settings: StudySettings,
    view: StudyView,
    files: Mapping[File, Path | None],
    *,
    every: bool,
    check: bool,
) -> None:
    """Ask, write ``files``, and show the answer; ``every`` shows all details and remarks."""
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    for file, path in files.items():
        if file.page and path is not None:
            check_page(path)  # before the work, not after it
    if offer.needs_cache(options):
        refuse_missing_cache(settings.general.cache)
    models = [options.model] if offer.of_models else []
    elsewhere = getattr(options, "system", None) is not None and not check
    with open_workspace(settings.common(models), elsewhere=elsewhere) as workspace:
        study = offer.load()(options, workspace, note)
        warn_of_crowding(study.target, 1)
        result = ask(study, measure=not settings.no_measure, check=check)
    failed = [_written(file, path, result) for file, path in files.items()]
    answer = None if view.answer is None else view.answer(result)
    if settings.general.json:
        paths = {file.fact: None if at is None else str(at) for file, at in files.items()}
        first = {} if answer is None else {"answer": answer}
        print_json({**first, **json_of(result), **paths})
    else:
        parts = ((view.details if every else None) or view.parts)(result)
        if answer is None:
            show(*parts)
        else:
            show_answer(answer, *parts, remarks=view.remarks(result), every=every)
        written = [f"{at}: {file.note}" for file, at in files.items() if at is not None]
        show(*(["", *written] if written else []))
    finish([*result.errors, *filter(None, failed)])


def _written(file: File, path: Path | None, result: Any) -> str | None:
    """Write ``file`` unless ``path`` is None; an error line if it cannot be written."""
    text = file.content(result) if path is not None else ""
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


def _of_file(file: File) -> inspect.Parameter:
    described = typer.Option(metavar=file.metavar, help=file.help, show_default=False)
    annotation = Annotated[Path | None, described]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(file.name, keyword, default=None, annotation=annotation)
