"""``bricks zoo list``: which models ship with the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bricks.cli.command import command
from bricks.cli.options import OutputOptions
from bricks.cli.output import print_json, show
from bricks.errors import UsageError, suggestion
from bricks.studies.options import option
from bricks.zoo import ZooEntry, decoders, entries, programs


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooFilter:
    """The task and the framework of the models that are listed; None: all."""

    task: str | None = option("Only models for this, such as 'text'.", default=None, metavar="TASK")
    framework: str | None = option(
        "Only models exported from this, such as mxnet.",
        default=None, metavar="NAME", values="zoo_frameworks",
    )  # fmt: skip


@command
def list_models(output: OutputOptions, only: ZooFilter) -> None:
    """List the models of the zoo: every command takes their names.

    Example: bricks zoo list --task "object detection"
    """
    models = sorted([*entries(), *programs(), *decoders()], key=lambda entry: entry.name)
    task, framework = only.task, only.framework
    if task is not None:
        _check("--task", task, [entry.task for entry in models])
        models = [entry for entry in models if entry.task == task]
    if framework is not None:
        _check("--framework", framework, [entry.framework for entry in models])
        models = [entry for entry in models if entry.framework == framework]
    rows = [{**entry.to_json(), "kind": entry.kind, "code": entry.code} for entry in models]
    if output.json:
        print_json({"models": rows})
        return
    from bricks.report.models import zoo_table

    show(zoo_table(rows), "", f"{_counted(models)}; {_size(models) / 1e6:.1f} MB of files.")


def _check(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        meant = suggestion(value, sorted(set(known)))
        raise UsageError(f"{option} {value!r} fits no model: {meant}")


def _counted(models: Sequence[ZooEntry]) -> str:
    """The number of models by kind, such as ``180 models: 128 ONNX models, …``."""
    shown = {entry.name for entry in models}
    kinds = {"ONNX models": entries(), "PyTorch programs": programs(), "decoders": decoders()}
    counts = {kind: len(shown & {entry.name for entry in of}) for kind, of in kinds.items()}
    parts = [f"{count} {kind}" for kind, count in counts.items() if count]
    return parts[0] if len(parts) == 1 else f"{len(models)} models: {', '.join(parts)}"


def _size(models: Sequence[ZooEntry]) -> int:
    return sum(entry.path.stat().st_size for entry in models if entry.path.is_file())
