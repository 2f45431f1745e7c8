"""``bricks generate``: write the suite of models: a benchmark without weights that can travel."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli.options import (
    CommonOptions,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import finish, print_json, show
from bricks.errors import BricksError, UsageError
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace

Out = Annotated[
    Path, typer.Option(metavar="SUITE.zip", help="The archive to write.", show_default=False)
]
Private = Annotated[
    bool,
    typer.Option("--private", help="Bricks alone: no names, no weights, nothing of how they join."),
]
Decoys = Annotated[
    int, typer.Option(min=0, metavar="N", help="Mix in so many bricks of zoo models (--private).")
]


@takes_options
def generate(
    options: CommonOptions, out: Out, private: Private = False, decoys: Decoys = 0
) -> None:
    """Write the suite of models: all that measuring them elsewhere needs, without weights.

    Where it is measured, only this package is needed.
    Example: bricks generate models/ --out suite.zip
    """
    if decoys and not private:
        raise UsageError(f"--decoys {decoys} hide bricks of a private suite: give --private too")
    if out.suffix.lower() != ".zip":
        raise UsageError(f"{out}: the name of a suite must end in .zip")
    from bricks._version import __version__
    from bricks.suite import write_private_suite, write_suite

    rows: list[dict[str, Any]] = []
    found: list[tuple[Model, Decomposition]] = []
    with open_workspace(options) as workspace:
        for model in decomposed(workspace, read_all(options)):
            row: dict[str, Any] = {"model": model.name, "bricks": None, "error": None}
            rows.append(row)
            try:
                if isinstance(model, Unread):
                    row["error"] = model.error
                    continue
                found.append((model, workspace.plans.decompose(model)))
                row["bricks"] = len(found[-1][1].plan.keys)
            except BricksError as error:
                row["error"] = str(error)
        bricks = {key: brick for _, each in found for key, brick in each.bricks.items()}
        mixed_in = _decoys(workspace, bricks, decoys) if decoys and bricks else {}
    told: dict[str, Any] = {
        "runtime": workspace.runtime,
        "granularity": options.granularity,
        "package": __version__,
    }
    facts: dict[str, Any] = {"suite": None, "private": private, "models": rows}
    if found:
        if private:
            write_private_suite(out, {**bricks, **mixed_in}, **told)
        else:
            write_suite(out, found, **told)
        content = out.read_bytes()
        facts |= {
            "suite": str(out),
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
            "bricks": len(bricks),
            "occurrences": sum(len(each.plan.occurrences) for _, each in found),
            "decoys": len(mixed_in),
        }
    if options.json:
        print_json(facts)
    elif found:
        from bricks.report.tables import size

        among = f" among {len(mixed_in)} others" if mixed_in else ""
        show(
            f"{out}: {len(found)} models, {len(bricks)} bricks{among} that stand for"
            f" {facts['occurrences']} occurrences, {size(facts['size_bytes'])}"
        )
    finish([row["error"] for row in rows if row["error"] is not None])


def _decoys(workspace: Workspace, mine: Mapping[str, Brick], wanted: int) -> dict[str, Brick]:
    """Bricks of models of the zoo, the same ones whenever the suite is generated."""
    from bricks.sources import zoo_of
    from bricks.suite import decoys

    names = [entry.name for entry in zoo_of(workspace.runtime.backend)]
    random.Random("\n".join(sorted(mine))).shuffle(names)

    def others() -> Iterator[Mapping[str, Brick]]:
        for name in names:
            with suppress(BricksError):  # not every runtime runs every model
                yield workspace.plans.decompose(workspace.read(name)).bricks

    return decoys(mine, others(), wanted)
