"""``bricks zoo list``: which models ship with the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from bricks.cli import completion
from bricks.cli.options import Json
from bricks.cli.output import print_json, show
from bricks.errors import UsageError, suggestion
from bricks.zoo import ZooEntry, decoders, entries, programs

Task = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="Only models for this, such as 'text'.",
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.zoo_frameworks,
        help="Only models exported from this, such as mxnet.",
    ),
]


def list_models(json: Json = False, task: Task = None, framework: Framework = None) -> None:
    """List the models of the zoo: every command takes their names.

    Example: bricks zoo list --task "object detection"
    """
    found = sorted([*entries(), *programs(), *decoders()], key=lambda entry: entry.name)
    if task is not None:
        _check("--task", task, [entry.task for entry in found])
        found = [entry for entry in found if entry.task == task]
    if framework is not None:
        _check("--framework", framework, [entry.framework for entry in found])
        found = [entry for entry in found if entry.framework == framework]
    rows = [{**entry.to_json(), "kind": entry.kind, "code": entry.code} for entry in found]
    if json:
        print_json({"models": rows})
        return
    from bricks.report.zoo import zoo_table

    show(zoo_table(rows), "", f"{_counted(found)}; {_size(found) / 1e6:.1f} MB of files.")


def _check(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        meant = suggestion(value, sorted(set(known)))
        raise UsageError(f"{option} {value!r} fits no model: {meant}")


def _counted(found: Sequence[ZooEntry]) -> str:
    """How many models there are, by kind: ``180 models: 128 ONNX models, …``."""
    shown = {entry.name for entry in found}
    kinds = {"ONNX models": entries(), "PyTorch programs": programs(), "decoders": decoders()}
    counts = {kind: len(shown & {each.name for each in of}) for kind, of in kinds.items()}
    told = [f"{count} {kind}" for kind, count in counts.items() if count]
    return told[0] if len(told) == 1 else f"{len(found)} models: {', '.join(told)}"


def _size(found: Sequence[ZooEntry]) -> int:
    return sum(entry.path.stat().st_size for entry in found if entry.path.is_file())
