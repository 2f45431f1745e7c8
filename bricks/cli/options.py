"""Options shared by commands, and their conversion into library objects."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bricks import sources
from bricks.cli import clock, completion
from bricks.cli.choices import EFFORTS, GRANULARITIES, OPTIMIZATIONS
from bricks.cli.known import warn_of
from bricks.cli.progress import terminal_progress
from bricks.cli.rules import load_rule
from bricks.cli.typed import with_options
from bricks.cli.verbosity import Quiet, Verbose
from bricks.cli.warnings import warn_of_empty_inputs
from bricks.errors import ModelError, OpenDimensions, UsageError
from bricks.graph.sizes import LARGEST_DIM, parse_shape
from bricks.session.defaults import (
    CACHE,
    EFFORT,
    GRANULARITY,
    MAX_THREADS,
    MAX_WORKERS,
    OPTIMIZATION,
    PRECISION,
    PROGRAMS_RUNTIME,
    RUNTIME,
    TIMEOUT_S,
)
from bricks.sources import Opened, PrivateBricks, ReadOptions, Unread, is_program

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace


def _not_empty(text: str) -> str:
    if not text:
        raise typer.BadParameter("is empty: give a folder or a database URL")
    return text


# Groups of options in the help of a command; options without a group come first.
_MODEL, _RUNTIME, _MEASURING = "Models", "Runtime", "Measuring"

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL…",
        autocompletion=completion.models,
        help="ONNX files, folders of them, names of zoo models, or suites (.zip).",
    ),
]
ZooModels = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL…",
        autocompletion=completion.models,
        show_default="the whole zoo",
        help="ONNX files, folders of them, or names of zoo models.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON on standard output.")]
Cache = Annotated[
    str,
    typer.Option(
        metavar="PATH_OR_URL",
        envvar="BRICKS_CACHE",
        callback=_not_empty,
        help="Where measurements are kept.",
    ),
]
RuntimeName = Annotated[
    str,
    typer.Option(
        "--runtime",
        metavar="NAME",
        autocompletion=completion.runtimes,
        help="What runs the models: onnxruntime, openvino, mxnet, torch, fake, or one of yours.",
        rich_help_panel=_RUNTIME,
    ),
]
GranularityText = Annotated[
    str,
    typer.Option(
        "--granularity",
        metavar="executed|N|N+1",
        autocompletion=completion.values(GRANULARITIES),
        help="Bricks: nodes of the graph the runtime executes, or at most N source layers,"
        " with +1 overlapping by one.",
        rich_help_panel=_RUNTIME,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_THREADS,
        metavar="N",
        show_default="physical cores",
        help="Threads of the runtime.",
        rich_help_panel=_RUNTIME,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=LARGEST_DIM,
        metavar="N",
        help="Size of the first dimension of the models' inputs.",
        rich_help_panel=_MODEL,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="The shape of an input, ? for sizes that stay; may be repeated.",
        rich_help_panel=_MODEL,
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=2,3|NAME=@FILE.npy",
        help="What an input holds, where what is made up is not meant; may be repeated.",
        rich_help_panel=_MODEL,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="What inputs hold, as arrays by name: for models whose time depends on values.",
        rich_help_panel=_MODEL,
    ),
]
Optimization = Annotated[
    str,
    typer.Option(
        metavar="|".join(OPTIMIZATIONS),
        autocompletion=completion.values(OPTIMIZATIONS),
        help="What the runtime does to a graph before it runs.",
        rich_help_panel=_RUNTIME,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Decides weights and inputs of what is run; no part of a key.",
        rich_help_panel=_MODEL,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Measure for this time, and predict what then lacks; the last round ends.",
        rich_help_panel=_MEASURING,
    ),
]
Precision = Annotated[
    float,
    typer.Option(
        min=1e-4,
        max=1.0,
        metavar="SHARE",
        help="Sample until the median is known this well (0.01: ±1 %).",
        rich_help_panel=_MEASURING,
    ),
]
EffortName = Annotated[
    str,
    typer.Option(
        "--effort",
        metavar="|".join(EFFORTS),
        autocompletion=completion.values(EFFORTS),
        help="Measure all bricks, or those that matter most and predict the others.",
        rich_help_panel=_MEASURING,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=1.0,
        metavar="SECONDS",
        help="How long one brick may take to run.",
        rich_help_panel=_MEASURING,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=1,
        max=MAX_WORKERS,
        metavar="N",
        help="Nodes that are run at the same time, where they do not depend on each other.",
        rich_help_panel=_RUNTIME,
    ),
]
OverlapRule = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME|MODULE:NAME",
        help="Python code that says which of them may be; see docs/construction.md.",
        rich_help_panel=_RUNTIME,
    ),
]
Retry = Annotated[
    bool,
    typer.Option("--retry", help="Measure again what failed before.", rich_help_panel=_MEASURING),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Measure further rounds of what is measured already.",
        rich_help_panel=_MEASURING,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Options of all commands that decompose models."""

    models: Models
    json: Json = False
    cache: Cache = CACHE
    batch: Batch = None
    shape: Shapes = None
    value: Values = None
    inputs: Inputs = None
    seed: Seed = 0
    runtime: RuntimeName = RUNTIME
    granularity: GranularityText = GRANULARITY
    optimization: Optimization = OPTIMIZATION
    threads: Threads = None
    quiet: Quiet = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring(CommonOptions):
    """Options of all commands that also measure."""

    budget: Budget = None
    precision: Precision = PRECISION
    effort: EffortName = EFFORT
    timeout: Timeout = TIMEOUT_S
    retry: Retry = False
    again: Again = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveying(CommonOptions):
    """Options of commands about many models; where none is named, about the whole zoo."""

    models: ZooModels = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructing(Measuring):
    """Options of all commands that also tell how long whole models take."""

    workers: Workers = 1
    overlap_rule: OverlapRule = None


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let Typer see the fields of a command's first parameter, a class of options, one by one."""
    hints = get_type_hints(command, include_extras=True)
    first, *own = inspect.signature(command).parameters.values()
    options = hints[first.name]
    kinds = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=kinds[field.name],
        )
        for field in fields(options)
    ]
    names = [parameter.name for parameter in parameters]
    parameters += [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in own
    ]

    def called(**values: Any) -> None:
        command(options(**{name: values.pop(name) for name in names}), **values)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return called


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


@contextmanager
def open_workspace(options: CommonOptions) -> Iterator[Workspace]:
    """A workspace with these options, its progress shown on a terminal."""
    # Imported here, so that `bricks --help` does not import the measuring code.
    from bricks.session.workspace import Workspace

    with (
        terminal_progress() as progress,
        Workspace.open(options.cache, workspace_options(options), progress=progress) as workspace,
    ):
        yield workspace
        warn_of(workspace.published)


def workspace_options(options: CommonOptions) -> Options:
    """The measuring options of a workspace, from these options."""
    from bricks.measure.conditions import Conditions
    from bricks.measure.rounds import StopRule
    from bricks.session.options import Options

    further: dict[str, Any] = {}
    if isinstance(options, Measuring):
        further["conditions"] = Conditions(
            rule=StopRule(precision=options.precision),
            timeout_s=options.timeout,
            budget_s=options.budget,
            budget_began_s=clock.began_s(),
            again=options.again,
        )
        further["retry"] = options.retry
        further["effort"] = options.effort
    if isinstance(options, Constructing):
        further["workers"] = options.workers
        if options.overlap_rule is not None:
            further["may_overlap"] = load_rule(options.overlap_rule)
    return Options(
        runtime=runtime_of(options),
        granularity=options.granularity,
        optimization=options.optimization,
        threads=options.threads,
        seed=options.seed,
        **further,
    )


def runtime_of(options: CommonOptions) -> str:
    """The runtime that is named, or the one that runs programs where only such are given."""
    only_programs = bool(options.models) and all(map(is_program, options.models))
    return PROGRAMS_RUNTIME if only_programs and options.runtime == RUNTIME else options.runtime


def read_all(
    options: CommonOptions,
    alone: list[Brick] | None = None,
    words: dict[str, str] | None = None,
) -> list[Model | Unread]:
    """The requested models, in order; one that cannot be read doesn't stop the others.

    A path may be a private suite, which contains no models: its bricks are added to ``alone``, or
    rejected if there is no such list. ``words`` receives for each model, by its digest, the word
    that names it alone on a command line, or the suite that has it.
    """
    models: list[Model | Unread] = []
    how = _read_options(options)
    for reference in _references(options):
        for opened in sources.open(reference, how):
            found = opened.found
            if isinstance(found, PrivateBricks):
                _bricks_of(found, alone)
            elif isinstance(found, Unread):
                models.append(_with_command(found, reference, opened.word, options))
            else:
                models.append(found)
                _note(opened, found, words, how)
    return models


def _read_options(options: CommonOptions) -> ReadOptions:
    """How the models are to be read."""
    from bricks.system import physical_cores

    return ReadOptions(
        batch=options.batch,
        shapes=_shapes(options),
        values=given_values(options),
        granularity=options.granularity,
        runtime=runtime_of(options),
        threads=options.threads or physical_cores(),
        seed=options.seed,
    )


def _shapes(options: CommonOptions) -> dict[str, tuple[int | None, ...]]:
    """What ``--shape`` says of inputs, by name; None for a size that stays."""
    shapes: dict[str, tuple[int | None, ...]] = {}
    for text in options.shape or []:
        name, shape = parse_shape(text)
        if name in shapes:
            raise UsageError(f"--shape gives input {name!r} twice")
        shapes[name] = shape
    return shapes


def _references(options: CommonOptions) -> list[str]:
    """The words that name models; where there are none, the zoo's names if it is meant."""
    if isinstance(options, Surveying) and not options.models:
        return [entry.name for entry in sources.zoo_of(options.runtime)]
    return list(options.models or ())


def _bricks_of(private: PrivateBricks, alone: list[Brick] | None) -> None:
    """Add the bricks of a private suite to ``alone``; refused where models are wanted."""
    if alone is None:
        raise sources.refusal(private)
    alone += private.bricks


def _note(opened: Opened, model: Model, words: dict[str, str] | None, how: ReadOptions) -> None:
    """Remember the word of a model, and warn of inputs that are empty unless chosen otherwise."""
    if opened.adjustable and not how.shapes and not how.values:
        warn_of_empty_inputs(model)
    if words is not None:
        words[model.digest] = opened.word


def given_values(options: CommonOptions) -> dict[str, Any]:
    """What ``--inputs`` and ``--value`` say of inputs, by name; arrays, or numbers as text."""
    from bricks.graph.input_values import parse_value, read_arrays

    values: dict[str, Any] = {}
    if options.inputs is not None:
        values.update(read_arrays(options.inputs))
    for text in options.value or []:
        name, value = parse_value(text)
        if name in values:
            raise UsageError(f"input {name!r} is given twice: leave one --value or --inputs out")
        values[name] = value
    return values


def _with_command(unread: Unread, reference: str, word: str, options: CommonOptions) -> Unread:
    """The same, with a command to be pasted whole where that would set the open dimensions.

    ``word`` names the model alone; ``reference`` may be a folder, whose other files are not meant.
    """
    error, path = unread.cause, str(Path(word))
    if not isinstance(error, OpenDimensions):
        return unread
    others = set(options.models) - {path}
    command = with_options(error.options, others) if error.options else None
    if command is None:
        return unread
    if reference in others:
        command = command.replace(" --", f" {shlex.quote(path)} --", 1)
    return replace(unread, cause=ModelError(f"{error.problem}: try {command}, or other sizes"))


def decomposed(workspace: Workspace, models: Sequence[Model | Unread]) -> Sequence[Model | Unread]:
    """``models``, after decomposing those for which ``workspace`` has no plan yet.

    Many models are decomposed in parallel; a later request for one that failed raises its error.
    """
    readable = [model for model in models if not isinstance(model, Unread)]
    if len(readable) > 1:
        from bricks.session.batch import decompose_all

        decompose_all(workspace, readable)
    return models
