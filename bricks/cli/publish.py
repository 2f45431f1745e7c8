"""``bricks cache publish``: measure the zoo on this host, for everybody to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import OutputOptions
from bricks.cli.output import print_json, show
from bricks.cli.progress import terminal_progress
from bricks.errors import BricksError, UsageError
from bricks.session.defaults import MAX_THREADS, RUNTIME
from bricks.studies.options import argument, option
from bricks.units.quantities import whole_numbers_of

if TYPE_CHECKING:
    from bricks.system import Runtime


def _numbers_of_threads(flag: str, text: str) -> Sequence[int]:
    return whole_numbers_of(flag, text, MAX_THREADS, "numbers of threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The models and targets that are published, the cache of their results, and the folder."""

    models: list[str] | None = argument(
        "Models, by name, file or folder.",
        default=None, metavar="[MODEL]…", values="models", shown="the whole zoo",
    )  # fmt: skip
    into: Path = option(
        "The folder of published files and their index.",
        default=Path("cache/published"), metavar="FOLDER",
    )  # fmt: skip
    threads: Sequence[int] = option(
        "Numbers of threads, each a target.",
        default=(1, 2), metavar="1,2", shown="1,2", read=_numbers_of_threads,
    )  # fmt: skip
    runtime: str = option(
        "What executes models.", default=RUNTIME, metavar="NAME", values="runtimes"
    )
    cache: str = option(
        "A cache for this alone: all of it is published. A second call goes on with it.",
        default="cache/publishing", metavar="FOLDER",
    )  # fmt: skip


@command
def publish(asked: PublishOptions, output: OutputOptions) -> None:
    """Measure the zoo on this quiet host, check estimates against runs, and write a results file.

    Takes a quarter of an hour for each number of threads. Without models given, those that the
    runtime does not run are left out by name. Example: bricks cache publish
    """
    from bricks.analysis import publishing
    from bricks.analysis.publishing import runnable, validated
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.sources import zoo_of

    into = asked.into
    if not into.is_dir():
        raise UsageError(f"{into}: there is no such folder: make it first")
    names = asked.models or [entry.name for entry in zoo_of(asked.runtime)]
    validations, refused = [], dict[str, str]()
    with terminal_progress() as progress:
        for number in asked.threads:
            options = Options(runtime=asked.runtime, threads=number, published=False)
            with Workspace.open(asked.cache, options, progress=progress) as workspace:
                chosen, why_not = runnable(workspace, [workspace.read(name) for name in names])
                refused |= why_not
                if asked.models and refused:
                    raise BricksError(next(iter(refused.values())))
                validations.append(validated(workspace, chosen))
    entry = publishing.publish(asked.cache, validations, into)
    size = (into / entry.file).stat().st_size
    if output.json:
        print_json({"folder": str(into), "bytes": size, **entry.to_json(), "left_out": refused})
        return
    show(*(f"left out: {reason}" for reason in refused.values()))
    show(f"{into / entry.file}: {size / 1e6:.1f} MB, SHA-256 {entry.sha256}")
    show(*(_line(target.runtime, entry.about["targets"][target.key]) for target in entry.targets))


def _line(runtime: Runtime, facts: dict[str, Any]) -> str:
    from bricks.report.figures import count_text

    return (
        f"  {runtime.backend}, {count_text(runtime.threads, 'thread')}: {facts['models']}"
        f" models, {facts['bricks']} bricks; estimates beside runs: median error"
        f" {facts['median_abs_error']:.1%}, largest {facts['max_abs_error']:.1%},"
        f" geometric mean of ratios {facts['geomean_ratio']:.3f}"
    )
