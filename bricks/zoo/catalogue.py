"""The models of the zoo, by name, and its workloads that can be trained until an accuracy.

Users type names, so this module also answers typing errors. The zoo is a folder of ONNX files with
a ``manifest.json``: ``$BRICKS_ZOO``, else the one next to this module (an installed package), else
``models/`` at the top of a source checkout. Workloads are functions in its ``training/``: only
their code is shipped, and no step of them is recorded, so the manifest does not list them. Must not
know the content of ONNX files: another package reads them, and importing onnx takes longer than
everything here. Must not import any workload.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bricks.errors import ModelError, first_line, nearest, suggestion
from bricks.graph.call import INFERENCE

_MANIFEST = "manifest.json"
# The folder of recorded programs and of the code that they were recorded from, in the zoo.
PROGRAMS = "torch"
# The folder of decoders with a cache, whose inputs have open dimensions, and their kind.
DECODERS, DECODER = "decoders", "decoder"
_BESIDE = Path(__file__).resolve().parent / "models"
_CHECKOUT = Path(__file__).resolve().parents[2] / "models"

# A function of a Python program.
_ENTRY = re.compile(r"(?:.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):[^\W\d]\w*")

# Name prefixes of models that a recipe takes from a framework's own collection.
_SOURCES = ("gluon_", "mx_")

# A message names at most this many models.
_MAX_NAMED = 20

TRAININGS = "training"


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """The manifest's entry for one zoo model. ``inputs`` are (name, ONNX data type, shape).

    In a shape, a name stands for an open dimension.
    ``recipe`` names the file in ``recipes/`` that builds it. ``flops`` counts the operations of the
    model before optimisation, a multiply-add being two; None where an operator's are unknown.
    ``kind`` is the kind of run: inference, or a step of training. ``code`` is the recorded
    function, as ``FILE.py:FUNCTION`` relative to the zoo; None for ONNX models.
    """

    name: str
    version: int
    task: str
    family: str
    framework: str
    source: str
    recipe: str
    inputs: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    parameters: int
    flops: int | None
    path: Path
    sha256: str
    kind: str = INFERENCE
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as in the manifest, with the file's name for its path."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        facts["inputs"] = {name: [dtype, list(shape)] for name, dtype, shape in self.inputs}
        facts["path"] = self.path.name
        del facts["kind"], facts["code"]
        facts = {"file" if name == "path" else name: value for name, value in facts.items()}
        if self.kind != INFERENCE or self.code is not None:
            facts["kind"] = self.kind
        return facts if self.code is None else {**facts, "code": self.code}


def is_entry(text: str) -> bool:
    """Whether ``text`` names a function of a program: FILE.py:FUNCTION or module:FUNCTION."""
    return _ENTRY.fullmatch(text) is not None


def entries() -> list[ZooEntry]:
    """All ONNX models of the zoo, sorted by name; :class:`ModelError` for an unusable manifest."""
    return _read_manifest(zoo_folder() / _MANIFEST)


def programs() -> list[ZooEntry]:
    """All recorded programs of the zoo, as :func:`entries`; none where the zoo has no such folder.

    A program is known by the name of its function after ``torch_``.
    """
    return _entries_in(PROGRAMS)


def decoders() -> list[ZooEntry]:
    """All decoders with a cache, as :func:`entries`; none where the zoo has no such folder."""
    return _entries_in(DECODERS)


def _entries_in(folder: str) -> list[ZooEntry]:
    manifest = zoo_folder() / folder / _MANIFEST
    return _read_manifest(manifest) if manifest.is_file() else []


def _read_manifest(manifest: Path) -> list[ZooEntry]:
    try:
        return list(_entries(manifest.read_text(encoding="utf-8"), manifest.parent))
    except OSError as exc:
        raise ModelError(
            f"the zoo's manifest {manifest} cannot be read ({exc.strerror}):"
            " reinstall the package, or set BRICKS_ZOO to a folder that has one"
        ) from exc
    except KeyError as exc:
        raise ModelError(f"the zoo's manifest {manifest} has an entry without {exc}") from exc
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(
            f"the zoo's manifest {manifest} is damaged ({first_line(exc, 100)}):"
            " restore it, or rebuild the zoo"
        ) from exc


@lru_cache(maxsize=4)  # asked for every model of the zoo
def _entries(manifest: str, folder: Path) -> tuple[ZooEntry, ...]:
    items = json.loads(manifest)
    if not isinstance(items, list):
        raise TypeError("not a list")
    return tuple(sorted((_entry(item, folder) for item in items), key=lambda item: item.name))


def entry(name: str, among: str = "zoo model") -> ZooEntry:
    """The zoo model called ``name``, which may lack the prefix of the model's source.

    Raises :class:`ModelError`, with the nearest name, if there is none, or if several match;
    ``among`` says in words what was searched.
    """
    zoo = {entry.name: entry for entry in (*entries(), *programs(), *decoders())}
    if name in zoo:
        return zoo[name]
    meant = [source + name for source in _SOURCES if source + name in zoo]
    if len(meant) > 1:
        raise ModelError(f"{name!r} may be {' or '.join(meant)}: give one of these names")
    if not meant:
        raise ModelError(f"no {among} is called {name!r}: {_hint(name, zoo)}")
    return zoo[meant[0]]


def put(folder: Path, items: Iterable[dict[str, Any]]) -> None:
    """Write manifest entries into the manifest of ``folder``; its other entries are kept."""
    manifest = folder / _MANIFEST
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else []
    new = [_entry(item, folder).to_json() for item in items]
    merged = {str(item["name"]): item for item in (*known, *new)}
    lines = json.dumps([merged[name] for name in sorted(merged)], indent=1)
    written = manifest.with_suffix(".new")
    written.write_text(lines + "\n", encoding="utf-8")
    written.replace(manifest)


def zoo_folder() -> Path:
    """The folder of the zoo: files, manifest and, in a checkout, recipes."""
    chosen = os.environ.get("BRICKS_ZOO")
    if chosen:
        return Path(chosen).expanduser()
    return _BESIDE if (_BESIDE / _MANIFEST).is_file() else _CHECKOUT


def _entry(item: dict[str, Any], folder: Path) -> ZooEntry:
    return ZooEntry(
        name=str(item["name"]),
        version=int(item["version"]),
        task=str(item["task"]),
        family=str(item["family"]),
        framework=str(item["framework"]),
        source=str(item["source"]),
        recipe=str(item["recipe"]),
        inputs=tuple(
            (name, str(dtype), tuple(d if isinstance(d, str) else int(d) for d in shape))
            for name, (dtype, shape) in item["inputs"].items()
        ),
        parameters=int(item["parameters"]),
        flops=None if item["flops"] is None else int(item["flops"]),
        path=folder / str(item["file"]),
        sha256=str(item["sha256"]),
        kind=str(item.get("kind", INFERENCE)),
        code=None if item.get("code") is None else str(item["code"]),
    )


def _hint(name: str, zoo: Iterable[str]) -> str:
    names = list(zoo)
    meant = nearest(name, names)
    if meant is not None:
        return f"did you mean {meant}?"
    if len(names) > _MAX_NAMED:
        return f"the zoo has {len(names)} models, 'bricks zoo list' names them"
    return f"the zoo has {', '.join(names)}"


def trainings() -> dict[str, str]:
    """The functions, as ``training/FILE.py:FUNCTION`` relative to the zoo, by their names."""
    functions = {}
    for path in sorted((zoo_folder() / TRAININGS).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions[node.name] = f"{TRAININGS}/{path.name}:{node.name}"
    return functions


def find_training(name: str) -> tuple[str, bool]:
    """The function that ``name`` refers to, and whether its file is relative to the zoo.

    ``name`` is a function as ``FILE.py:FUNCTION`` or ``module:FUNCTION``, or the name of a workload
    of the zoo. Raises :class:`ModelError` if there is none.
    """
    if is_entry(name):
        return name, False
    known = trainings()
    if name not in known:
        otherwise = "give FILE.py:FUNCTION, or one of"
        raise ModelError(f"no workload is called {name!r}: {suggestion(name, known, otherwise)}")
    return known[name], True
