"""Models that a command line names: read and decomposed, with warnings about what slows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks import sources
from bricks.cli.invocation import with_options
from bricks.cli.options import CommonOptions, ModelOptions, SurveyOptions
from bricks.cli.output import note
from bricks.cli.workspaces import runtime_of
from bricks.errors import BricksError, ModelError, OpenDimensions, UsageError
from bricks.sources import PrivateBricks, ReadOptions, Unread

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target

# Models that a note names.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class DecomposedModel:
    """A model with its plan and bricks."""

    model: Model
    decomposition: Decomposition


@dataclass(frozen=True, slots=True)
class ReadModels:
    """The models of a command line, in order, and the bricks of private suites among its words.

    ``words`` are, by the digest of a model, the words that name the models on a command line, or
    the suites that have them.
    """

    models: Sequence[Model | Unread]
    private_bricks: Sequence[Brick]
    words: Mapping[str, str]

    def word(self, model: Model | Unread) -> str | None:
        """The word that names ``model``; None if it could not be read."""
        return None if isinstance(model, Unread) else self.words[model.digest]


def read_all(
    options: CommonOptions, *, private: bool = False, assumed: dict[str, str] | None = None
) -> ReadModels:
    """Read the models of the command line; one that cannot be read doesn't stop the others.

    Unless ``private``, suites that contain no models but bricks are refused. ``assumed`` has the
    words of models about whose open batch a note was printed, and gets further ones.
    """
    noted = {} if assumed is None else assumed
    models: list[Model | Unread] = []
    private_bricks: list[Brick] = []
    words: dict[str, str] = {}
    from bricks.system import physical_cores

    read_options = ReadOptions(
        batch=options.models.batch,
        shapes=shapes_of(options.models),
        values=values_of(options.models),
        granularity=options.runtime.granularity,
        runtime=runtime_of(options),
        threads=options.runtime.threads or physical_cores(),
        device=options.runtime.device,
        python=options.runtime.python,
        seed=options.models.seed,
        quantize=options.models.quantize,
    )
    new: dict[str, str] = {}
    for reference in _references(options):
        for result in _opened(reference, read_options, new):
            found = result.content
            if isinstance(found, PrivateBricks):
                if not private:
                    raise sources.private_suite_error(found)
                private_bricks += found.bricks
            elif isinstance(found, Unread):
                models.append(_with_command(found, reference, result.word, options))
            else:
                models.append(found)
                words[found.digest] = result.word
                if result.note is not None:
                    note(result.note)
                if result.adjustable and not read_options.shapes and not read_options.values:
                    warn_of_empty_inputs(found)
    _note_assumed({word: axis for word, axis in new.items() if word not in noted})
    noted |= new
    return ReadModels(models, private_bricks, words)


def _opened(
    reference: str, options: ReadOptions, assumed: dict[str, str]
) -> Iterator[sources.ReadResult]:
    """Read the models of ``reference``, with a batch of 1 where no other dimension is open.

    ``assumed`` gets the words of these models, and the symbols of their batch.
    """
    for result in sources.open(reference, options):
        found = result.content
        cause = found.cause if isinstance(found, Unread) else None
        axis = cause.batch_axis if isinstance(cause, OpenDimensions) else None
        if axis is None or options.batch is not None or not isinstance(found, Unread):
            yield result
            continue
        assumed[result.word] = axis
        yield from sources.open(result.word, replace(options, batch=1, name=found.name))


def _note_assumed(assumed: Mapping[str, str]) -> None:
    """Note the models whose batch was assumed to be 1; ``assumed`` has its symbol by word."""
    files = [Path(word).name for word in assumed]
    symbols = {f"axis {symbol}" if symbol else "first axis" for symbol in assumed.values()}
    if files:
        what = symbols.pop() if len(symbols) == 1 else "first axis"
        note(f"batch 1 was assumed for the open {what} of {_few(files)}: --batch changes it")


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more models" if more > 0 else "")


def shapes_of(options: ModelOptions) -> dict[str, tuple[int | None, ...]]:
    """Shapes of ``--shape`` by the name of the input; None for a dimension that stays."""
    from bricks.graph.types import parse_shape

    shapes: dict[str, tuple[int | None, ...]] = {}
    for text in options.shape or []:
        name, shape = parse_shape(text)
        if name in shapes:
            raise UsageError(f"--shape gives input {name!r} twice")
        shapes[name] = shape
    return shapes


def values_of(options: ModelOptions) -> dict[str, Any]:
    """Values of ``--inputs`` and ``--value`` by the name of the input: arrays or texts."""
    values: dict[str, Any] = {}
    if options.inputs is None and not options.value:
        return values
    from bricks.graph.input_values import parse_value, read_arrays

    if options.inputs is not None:
        values.update(read_arrays(options.inputs))
    for text in options.value or []:
        name, value = parse_value(text)
        if name in values:
            raise UsageError(f"input {name!r} is given twice: leave one --value or --inputs out")
        values[name] = value
    return values


def _references(options: CommonOptions) -> Sequence[str]:
    """The words that name models; for a survey without any, the names of the zoo."""
    if isinstance(options, SurveyOptions) and not options.models.words:
        return [entry.name for entry in sources.zoo_of(options.runtime.name)]
    return options.models.words


def _with_command(unread: Unread, reference: str, word: str, options: CommonOptions) -> Unread:
    """Add to an error about open dimensions the command that sets them.

    ``word`` names the model itself; ``reference`` may be its folder, whose other files are not
    meant. Other errors stay.
    """
    error, path = unread.cause, str(Path(word))
    if not isinstance(error, OpenDimensions):
        return unread
    others = set(options.models.words) - {path}
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


def decompositions(
    workspace: Workspace, models: Sequence[Model | Unread]
) -> Iterator[DecomposedModel | Unread]:
    """Yield each model with its decomposition, or the reason why it has none."""
    for model in decomposed(workspace, models):
        if isinstance(model, Unread):
            yield model
            continue
        try:
            yield DecomposedModel(model, workspace.plans.decompose(model))
        except BricksError as error:
            yield Unread(model.name, error)


# Trained networks have a few; a larger share than this slows whole layers down.
MANY_DENORMALS = 0.01


def warn_of_denormals(model: Model) -> float | None:
    """Warn if many of a model's own weights are denormal; return their share, None if unknown."""
    from bricks.graph.weights import denormal_share

    try:
        share = denormal_share(model)
    except BricksError as error:
        note(f"warning: {error}")
        return None
    if share is not None and share > MANY_DENORMALS:
        note(
            f"warning: {model.name}: {100 * share:.0f} % of its weights are denormal: a runtime may"
            " be many times slower than with ordinary ones (onnxruntime computes with float32 ones"
            " unless session.set_denormal_as_zero is set)"
        )
    return share


def warn_of_empty_inputs(model: Model) -> None:
    """Note inputs that the file leaves without elements: some exporters write 0 for any size."""
    for name in model.empty_inputs:
        note(
            f"{model.name}: input '{name}' has no elements, since the file fixes a dimension of it"
            " at 0: give --shape or --batch for another size"
        )


def warn_of_crowding(target: Target, workers: int) -> None:
    """Warn if there are too few processors for the workers to run in parallel."""
    from bricks.backends import describe_elsewhere

    needed = workers + target.runtime.threads
    there = target.system.processors
    if workers > 1 and describe_elsewhere(target.runtime.backend).timed and needed > there:
        note(
            f"warning: {workers} workers with --threads {target.runtime.threads} need {needed}"
            f" processors, one for the thread that waits for them, and {target.system.name} has"
            f" {there:.3g}: they run slower than in sequence, and estimates tell the order of"
            " magnitude alone"
        )
