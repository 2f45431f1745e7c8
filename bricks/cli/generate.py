"""``bricks generate``: write the suite of models: a benchmark without weights that can travel."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import CommonOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.workspaces import open_workspace
from bricks.errors import BricksError, UsageError
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """The archive of a suite, and whether it is private."""

    out: Path = option("The archive to write.", metavar="SUITE.zip", shown=False)
    private: bool = option(
        "Bricks alone: no names, no weights, nothing of how they join.", default=False
    )
    decoys: int = option(
        "Mix in so many bricks of zoo models (--private).", default=0, least=0, metavar="N"
    )


@command
def generate(options: CommonOptions, suite: SuiteOptions) -> None:
    """Write the suite of models: all that measuring them elsewhere needs, without weights.

    Where it is measured, only this package is needed.
    Example: bricks generate models/ --out suite.zip
    """
    out, decoys = suite.out, suite.decoys
    if decoys and not suite.private:
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
        "granularity": options.runtime.granularity,
        "package": __version__,
    }
    facts: dict[str, Any] = {"suite": None, "private": suite.private, "models": rows}
    if found:
        if suite.private:
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
    if options.general.json:
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
