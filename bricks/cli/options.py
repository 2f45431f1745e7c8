"""Options that commands share, and what they make of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli.progress import terminal_progress
from bricks.errors import BricksError, UsageError
from bricks.graph.shapes import parse_shape
from bricks.zoo import find

if TYPE_CHECKING:
    from bricks.bench import Bench
    from bricks.graph.model import Model

Models = Annotated[
    list[str],
    typer.Argument(metavar="MODEL…", help="ONNX files, folders of them, or names of zoo models."),
]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON on standard output.")]
Cache = Annotated[
    str,
    typer.Option(metavar="PATH_OR_URL", envvar="BRICKS_CACHE", help="Where measurements are kept."),
]
RuntimeName = Annotated[
    str, typer.Option("--runtime", metavar="onnxruntime|fake", help="What runs the models.")
]
GranularityText = Annotated[
    str,
    typer.Option(
        "--granularity",
        metavar="executed|N",
        help="Bricks: nodes of the graph the runtime executes, or at most N source layers.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of the runtime. [default: physical cores]")
]
Batch = Annotated[
    int | None, typer.Option(min=1, help="Size of the first dimension of the models' inputs.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=1x3x224x224", help="The shape of an input; may be repeated."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Decides synthetic weights and inputs.")]
Budget = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop measuring after this time.")
]
Precision = Annotated[
    float,
    typer.Option(
        min=1e-4, max=1.0, help="Sample until the median is known this well (0.01: ±1 %)."
    ),
]
Timeout = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="How long one brick may take to run.")
]
Retry = Annotated[bool, typer.Option("--retry", help="Measure again what failed before.")]


@dataclass(frozen=True, slots=True)
class Common:
    """Options of all commands that decompose or measure."""

    cache: str
    runtime: str
    granularity: str
    threads: int | None
    seed: int
    precision: float = 0.01
    budget: float | None = None
    timeout: float = 60.0
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Unread:
    """A model that could not be read, and why, in one line."""

    name: str
    error: str


@contextmanager
def open_bench(common: Common) -> Iterator[Bench]:
    """A bench with these options, its progress shown on a terminal."""
    # Here, so that `bricks --help` need not import what measuring needs.
    from bricks.bench import Bench
    from bricks.measure.campaign import Conditions
    from bricks.measure.rounds import StopRule

    conditions = Conditions(
        rule=StopRule(precision=common.precision),
        timeout_s=common.timeout,
        budget_s=common.budget,
    )
    with (
        terminal_progress() as progress,
        Bench(
            common.cache,
            progress=progress,
            runtime=common.runtime,
            granularity=common.granularity,
            threads=common.threads,
            seed=common.seed,
            conditions=conditions,
            retry=common.retry,
        ) as bench,
    ):
        yield bench


def read_all(
    names: list[str], batch: int | None, shape_texts: list[str] | None
) -> list[Model | Unread]:
    """The models that ``names`` mean, in order; one that cannot be read doesn't stop the others."""
    from bricks.graph.read import read_model

    shapes: dict[str, tuple[int, ...]] = {}
    for text in shape_texts or []:
        name, shape = parse_shape(text)
        if name in shapes:
            raise UsageError(f"--shape gives input {name!r} twice")
        shapes[name] = shape
    models: list[Model | Unread] = []
    for name in names:
        try:
            files: list[tuple[str, Path]] = find(name)
        except BricksError as error:
            models.append(Unread(name, str(error)))
            continue
        for title, path in files:
            try:
                models.append(read_model(path, batch=batch, shapes=shapes, name=title))
            except BricksError as error:
                models.append(Unread(title, str(error)))
    return models
