"""``bricks zoo``: the models that ship with the package, and their recipes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from bricks.cli.command import command
from bricks.cli.options import OutputOptions
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.zoo.shared_bricks import coverage, similarity
from bricks.errors import BricksError, UsageError, suggestion
from bricks.studies.options import argument, option
from bricks.zoo import (
    DECODER,
    DECODERS,
    ZooEntry,
    decoders,
    entries,
    entry,
    programs,
    put,
    zoo_folder,
)

if TYPE_CHECKING:
    from bricks.zoo.recipes import Built


def _no_file(path: Path | None) -> Path | None:
    if path is not None and path.is_file():
        raise typer.BadParameter(f"Directory '{path}' is a file.")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The models or the recipe that are built, and the folder of their files."""

    names: list[str] | None = argument(
        "Models of the zoo; see zoo list.", default=None, metavar="NAME…", values="zoo_models"
    )
    every: bool = option("All models of the zoo.", default=False, flag="--all")
    recipe: str | None = option(
        "All models of this recipe, new ones among them.",
        default=None, metavar="RECIPE", values="zoo_recipes",
    )  # fmt: skip
    out: Path | None = option(
        "Where files go.", default=None, metavar="FOLDER", shown="the zoo itself", check=_no_file
    )


@command
def build(asked: BuildOptions, output: OutputOptions) -> None:
    """Build models of the zoo from their recipes, and compare them with the manifest.

    Frameworks are installed in environments of their own, which takes minutes the first time.
    In the zoo itself only a model that is new, or of a new version, is put in the place of another.

    Example: bricks zoo build alexnet --out /tmp/zoo
    """
    known = {model.name: model for model in (*entries(), *decoders())}
    recipe, names = asked.recipe, dict.fromkeys(asked.names or ())
    chosen = [*known.values()] if asked.every else [entry(name) for name in names]
    for model in chosen:
        if model.code is not None:
            raise UsageError(
                f"{model.name} is recorded from {model.code}, by no recipe: run 'make programs' in"
                " a checkout"
            )
    if bool(chosen) == (recipe is not None):
        raise UsageError("name models of the zoo, or give --all, or --recipe RECIPE")
    by_recipe: dict[str, list[str]] = {} if recipe is None else {recipe: []}
    for model in chosen:
        by_recipe.setdefault(model.recipe, []).append(model.name)
    rows = [row for r, some in by_recipe.items() for row in _rows(r, some, known, asked.out)]
    if output.json:
        print_json({"models": rows, "out": str(asked.out or zoo_folder())})
    else:
        for row in rows:
            if row["error"] is None:
                verdict = "the file of the manifest" if row["same"] else "new"
                show(f"{row['name']} {row['sha256'][:12]}: {verdict}")
    finish(row["error"] for row in rows if row["error"] is not None)


def _rows(
    recipe: str, names: list[str], known: dict[str, ZooEntry], out: Path | None
) -> list[dict[str, Any]]:
    """The JSON object of each model; a recipe that fails does not stop the others."""
    from bricks.zoo.recipes import NotBuilt
    from bricks.zoo.recipes import build as build_models

    zoo = zoo_folder()
    with TemporaryDirectory() as folder:
        try:
            results = build_models(zoo, recipe, names, Path(folder), note)
        except BricksError as error:
            return [_row(name, recipe, error=f"{name}: {error}") for name in names or (recipe,)]
        rows = []
        for result in results:
            if isinstance(result, NotBuilt):
                rows.append(_row(result.name, recipe, error=result.error))
            else:
                rows.append(_kept(result, known.get(result.name), out, zoo))
    return rows


def _kept(built: Built, before: ZooEntry | None, out: Path | None, zoo: Path) -> dict[str, Any]:
    """Copy a newly built model to its folder; its JSON object, compared with the manifest."""
    same = before is not None and before.sha256 == built.sha256
    newer = before is None or built.entry["version"] > before.version
    row = _row(built.name, built.recipe, same=same, sha256=built.sha256)
    if before is not None:
        row["expected_sha256"] = before.sha256
    if not same and not newer and before is not None:
        row["error"] = (
            f"{built.name}: what is built ({built.sha256[:12]}) is not the file of the manifest"
            f" ({before.sha256[:12]}): look at it with --out FOLDER, or raise its version in the"
            f" recipe {built.recipe}"
        )
        if out is None:
            return row
    decoder = built.entry.get("kind") == DECODER
    try:
        row["flops"] = None if decoder else _flops(built.path)  # of which step?
    except BricksError as error:
        row["error"] = f"{built.name}: {error}"
        return row
    folder = out or (zoo / DECODERS if decoder else zoo)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built.path, folder / built.path.name)
    facts = {**built.entry, "flops": row["flops"]}
    put(folder, [facts])
    row["path"] = str(folder / built.path.name)
    return row


def _flops(path: Path) -> int | None:
    """FLOPs of the model as written; a multiply-add counts as two."""
    # Imported here, so that `bricks zoo list` need not import the decomposition.
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace

    options = Options(granularity="1", threads=1)
    with TemporaryDirectory() as cache, Workspace.open(cache, options) as workspace:
        return workspace.plans.decompose(workspace.read(str(path))).flops


def _row(name: str, recipe: str, **facts: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "recipe": recipe, "same": None, "sha256": None}
    row |= {"expected_sha256": None, "flops": None, "path": None, "error": None}
    return row | facts


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

    size_bytes = sum(entry.path.stat().st_size for entry in models if entry.path.is_file())
    show(zoo_table(rows), "", f"{_counted(models)}; {size_bytes / 1e6:.1f} MB of files.")


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


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="The models that ship with bricks, and their recipes.",
)
app.command("list")(list_models)
app.command("build")(build)
app.command()(similarity)
app.command()(coverage)
