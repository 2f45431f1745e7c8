"""``bricks cache publish``: measure the zoo on this host, for everybody to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.options import Json
from bricks.cli.output import print_json, show
from bricks.cli.progress import terminal_progress
from bricks.errors import BricksError, UsageError
from bricks.session.defaults import MAX_THREADS, RUNTIME

Into = Annotated[
    Path, typer.Option(metavar="FOLDER", help="The folder of published files and their index.")
]
Threads = Annotated[str, typer.Option(metavar="1,2", help="Numbers of threads, each a target.")]
Runtime = Annotated[
    str,
    typer.Option(metavar="NAME", help="What executes models.", autocompletion=completion.runtimes),
]
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL]…",
        autocompletion=completion.models,
        show_default="the whole zoo",
        help="Models, by name, file or folder.",
    ),
]
OwnCache = Annotated[
    str,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="A cache for this alone: all of it is published. A second call goes on with it.",
    ),
]


def publish(
    models: Models = None,
    into: Into = Path("cache/published"),
    threads: Threads = "1,2",
    runtime: Runtime = RUNTIME,
    json: Json = False,
    cache: OwnCache = "cache/publishing",
) -> None:
    """Measure the zoo on this quiet host, check estimates against runs, and write a results file.

    Takes a quarter of an hour for each number of threads. Without models given, those that the
    runtime does not run are left out by name. Example: bricks cache publish
    """
    from bricks.analysis.publishing import publish, runnable, validated
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.sources import zoo_of

    numbers = _numbers(threads)
    if not into.is_dir():
        raise UsageError(f"{into}: there is no such folder: make it first")
    names = models or [entry.name for entry in zoo_of(runtime)]
    found, refused = [], dict[str, str]()
    with terminal_progress() as progress:
        for number in numbers:
            options = Options(runtime=runtime, threads=number, published=False)
            with Workspace.open(cache, options, progress=progress) as workspace:
                chosen, why_not = runnable(workspace, [workspace.read(name) for name in names])
                refused |= why_not
                if models and refused:
                    raise BricksError(next(iter(refused.values())))
                found.append(validated(workspace, chosen))
    entry = publish(cache, found, into)
    size = (into / entry.file).stat().st_size
    if json:
        print_json({"folder": str(into), "bytes": size, **entry.to_json(), "left_out": refused})
        return
    for reason in refused.values():
        show(f"left out: {reason}")
    show(f"{into / entry.file}: {size / 1e6:.1f} MB, SHA-256 {entry.sha256}")
    for target in entry.targets:
        show(
            _line(
                target.runtime.threads, target.runtime.backend, entry.about["targets"][target.key]
            )
        )


def _line(threads: int, backend: str, facts: dict[str, Any]) -> str:
    return (
        f"  {backend}, {threads} {'thread' if threads == 1 else 'threads'}: {facts['models']}"
        f" models, {facts['bricks']} bricks; estimates beside runs: median error"
        f" {facts['median_abs_error']:.1%}, largest {facts['max_abs_error']:.1%},"
        f" geometric mean of ratios {facts['geomean_ratio']:.3f}"
    )


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= MAX_THREADS for part in parts):
        raise UsageError(f"--threads {text!r} are no numbers of threads: write them like 1,2")
    return [int(part) for part in dict.fromkeys(parts)]
