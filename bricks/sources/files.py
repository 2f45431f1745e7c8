"""Models in ONNX files, in suites, and in memory.

Files are named by a path, or lie in a folder; users type paths, so this module also answers typing
errors. A suite fixes shapes and how its models are cut, or is a private one, of bricks alone. In
memory, a model is an ``onnx.ModelProto``, or a graph of onnx-graphsurgeon. Must not know the
content of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BricksError, ModelError, UsageError, nearest
from bricks.reading.kept_models import read_once
from bricks.sources.source import PrivateBricks, ReadOptions, ReadResult, Unread, attempted

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The model called ``title`` in the ONNX file ``path``."""

    word: str
    title: str
    path: Path

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """The model, its open dimensions fixed as ``options`` say."""
        yield attempted(
            self.word,
            self.title,
            lambda: read_once(
                self.path, batch=options.batch, shapes=options.shapes, values=options.values,
                name=self.title if options.name is None else options.name,
            ),
            adjustable=True,
        )  # fmt: skip


def files(reference: str) -> list[OnnxFile] | None:
    """The ONNX files that ``reference`` names; None where it is no path, but may be a name.

    It is an ONNX file, or a folder of them (sorted by name; if the folder itself holds none, its
    subfolders are searched, one level deep). Raises :class:`ModelError` for a path that leads to no
    such file.
    """
    if not reference:  # to pathlib this is the current folder, which nobody meant
        raise ModelError("the name of a model is empty: give a file, a folder or a zoo model")
    path = Path(os.path.expanduser(reference))  # pathlib's own raises for unknown users
    if path.is_dir():
        models = _models_in(path)
        return [
            OnnxFile(reference if len(models) == 1 else str(p), title, p) for title, p in models
        ]
    if path.is_file() and path.suffix.lower() != ".onnx":
        raise ModelError(f"{reference}: not an ONNX file (its name must end in .onnx)")
    if path.exists():  # a file; or a pipe or a device, such as /dev/stdin
        return [OnnxFile(reference, path.stem if path.is_file() else path.name, path)]
    if path.is_symlink():
        raise ModelError(
            f"{reference} is a link to {os.readlink(path)}, which does not exist: mend the link"
        )
    if os.sep in reference or path.suffix.lower() == ".onnx":
        meant = _nearest_path(path)
        hint = "check the path" if meant is None else f"did you mean {meant}?"
        raise ModelError(f"no file or folder is called {reference!r}: {hint}")
    return None


def _models_in(folder: Path) -> list[tuple[str, Path]]:
    direct = _onnx_files(folder)
    if direct:
        return [(path.stem, path) for path in direct]
    models = []
    for subfolder in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = _onnx_files(subfolder)
        # A subfolder per model often holds "model.onnx": then the subfolder distinguishes them.
        single = len(files) == 1
        models += [(subfolder.name if single else f"{subfolder.name}/{p.stem}", p) for p in files]
    if not models:
        raise ModelError(f"the folder {folder} holds no .onnx file: give a folder that does")
    return models


def _nearest_path(path: Path) -> Path | None:
    """The entry of a similar name in the folder of a mistyped path; None if there is none."""
    try:
        names = [
            entry.name
            for entry in path.parent.iterdir()
            if (entry.suffix.lower() == ".onnx" if path.suffix else entry.is_dir())
        ]
    except OSError:  # the folder is mistyped too, or may not be looked into
        return None
    meant = nearest(path.name, names)
    return None if meant is None else path.with_name(meant)


def _onnx_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() == ".onnx" and p.is_file())


@dataclass(frozen=True, slots=True)
class InMemory:
    """A model object in memory, which is written to a new ``folder`` and read from there."""

    model: onnx.ModelProto | Graph
    folder: Callable[[], Path]
    word: str = ""

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """The model, its open dimensions fixed as ``options`` say."""
        # Here: to predict what is measured, nothing more need be imported.
        from bricks.graph.in_memory import proto_of, title_of, write_model

        proto = proto_of(self.model)
        title = title_of(proto)
        yield from OnnxFile(self.word, title, write_model(proto, self.folder(), title)).open(
            options
        )


def is_suite(reference: str) -> bool:
    """Whether ``reference`` names a suite."""
    return reference.lower().endswith(".zip")


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The suite in the archive that ``word`` is the path of."""

    word: str

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """Its models, or the bricks of a private suite.

        Raises :class:`UsageError` for a batch size, shapes or values, and for another granularity.
        """
        from bricks.suite import read_suite  # here: importing onnx takes a moment

        path = Path(self.word)
        if options.batch is not None or options.shapes or options.values:
            raise UsageError(
                f"the inputs in {path} are fixed: leave out --batch, --shape, --value and --inputs"
            )
        try:
            contents = read_suite(path)
        except BricksError as error:
            yield ReadResult(self.word, Unread(str(path), error))
            return
        if contents.granularity != options.granularity:
            raise UsageError(
                f"{path} was cut at granularity {contents.granularity}: give --granularity"
                f" {contents.granularity}"
            )
        if contents.bricks:
            yield ReadResult(self.word, PrivateBricks(str(path), contents.bricks))
        for model in contents.models:
            yield ReadResult(self.word, model)
