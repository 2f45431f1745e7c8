"""``bricks generate``: write the suite of models: a benchmark without weights that can travel."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import CommonOptions
from bricks.cli.output import finish, note, print_json, show_answer
from bricks.cli.reading import DecomposedModel, decompositions, read_all
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

    out: Path | None = option(
        "The archive to write.", default=None, metavar="SUITE.zip", shown=False
    )
    portable: Path | None = option(
        "Write a file that any Python with the runtime runs: nothing is installed there.",
        default=None,
        metavar="SUITE.pyz",
    )
    code: bool = option(
        "Add the code of your programs, for comparing with real steps (--portable).", default=False
    )
    private: bool = option(
        "Bricks alone: no names, no weights, nothing of how they join.", default=False
    )
    decoys: int = option(
        "Mix in so many bricks of zoo models (--private).", default=0, least=0, metavar="N"
    )


@command
def generate(options: CommonOptions, suite: SuiteOptions) -> None:
    """Write the suite of models: all that measuring them elsewhere needs, without weights.

    Where it is measured, only this package is needed; a portable suite needs only the runtime.
    Example: bricks generate models/ --out suite.zip
    """
    from bricks._version import __version__
    from bricks.report.models import suite_answer
    from bricks.suite import write_private_suite, write_suite

    out, decoys = _checked_out(suite), suite.decoys
    with open_workspace(options) as workspace:
        results = list(decompositions(workspace, read_all(options).models))
        models = [
            (result.model, result.decomposition)
            for result in results
            if isinstance(result, DecomposedModel)
        ]
        bricks = {key: brick for _, cut in models for key, brick in cut.bricks.items()}
        others = _decoys(workspace, bricks, decoys) if decoys and bricks else {}
        if models and suite.portable is not None:
            _write_portable(out, workspace, models, code=suite.code)
    facts: dict[str, Any] = {
        "suite": None,
        "private": suite.private,
        "models": list(map(_row, results)),
    }
    if models:
        origin: dict[str, Any] = {
            "runtime": workspace.runtime,
            "granularity": options.runtime.granularity,
            "package": __version__,
        }
        if suite.private:
            write_private_suite(out, {**bricks, **others}, **origin)
        elif suite.portable is None:
            write_suite(out, models, **origin)
        occurrences = sum(len(cut.plan.occurrences) for _, cut in models)
        content = out.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        facts |= {"suite": str(out), "sha256": digest, "size_bytes": len(content)}
        facts |= {"bricks": len(bricks), "occurrences": occurrences, "decoys": len(others)}
    answer = suite_answer(facts)
    if options.general.json:
        print_json({"answer": answer, **facts})
    elif models:
        show_answer(answer)
    finish(result.error for result in results if isinstance(result, Unread))


def _checked_out(suite: SuiteOptions) -> Path:
    """The archive to write; :class:`UsageError` for options that contradict each other."""
    if (suite.out is None) == (suite.portable is None):
        raise UsageError("give either --out SUITE.zip or --portable SUITE.pyz")
    if suite.decoys and not suite.private:
        raise UsageError(
            f"--decoys {suite.decoys} hide bricks of a private suite: give --private too"
        )
    if suite.private and suite.portable is not None:
        raise UsageError("a portable suite has plans, and so cannot be private: give --out")
    if suite.code and suite.portable is None:
        raise UsageError("--code goes into portable suites alone: give --portable SUITE.pyz")
    path, ending = (suite.out, ".zip") if suite.portable is None else (suite.portable, ".pyz")
    assert path is not None
    if path.suffix.lower() != ending:
        raise UsageError(f"{path}: the name of such a suite must end in {ending}")
    return path


def _write_portable(
    path: Path,
    workspace: Workspace,
    models: Sequence[tuple[Model, Decomposition]],
    *,
    code: bool,
) -> None:
    from bricks._version import __version__
    from bricks.session.portable import portable_content
    from bricks.suite.portable import write_portable

    content = portable_content(workspace, models, code=code)
    write_portable(path, content, package=__version__)
    for provider, variant in content.variants.items():
        for line in variant.notes:
            note(f"not for {provider}: {line}")


def _row(result: DecomposedModel | Unread) -> dict[str, Any]:
    if isinstance(result, Unread):
        return {"model": result.name, "bricks": None, "error": result.error}
    bricks = len(result.decomposition.plan.keys)
    return {"model": result.model.name, "bricks": bricks, "error": None}


def _decoys(workspace: Workspace, own: Mapping[str, Brick], count: int) -> dict[str, Brick]:
    """``count`` bricks of zoo models, the same ones whenever the suite is generated."""
    from bricks.sources import zoo_of
    from bricks.suite import decoys

    names = [entry.name for entry in zoo_of(workspace.runtime.backend)]
    random.Random("\n".join(sorted(own))).shuffle(names)

    def others() -> Iterator[Mapping[str, Brick]]:
        for name in names:
            with suppress(BricksError):  # not every runtime runs every model
                yield workspace.plans.decompose(workspace.read(name)).bricks

    return decoys(own, others(), count)
