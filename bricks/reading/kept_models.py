"""Models that were read before, kept as derived files: the same file is read once.

Reading a model, which needs the library of ONNX, takes several times as long as an answer about it
from the cache. What is kept is the model without its weights, under a digest of the file, of the
options and of the code that read it; it is used as long as files with further data are as they
were. What is damaged is read again. Must not know what reading does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import zlib
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.graph.model import Model
from bricks.graph.types import type_from_json
from bricks.system import derived_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_logger = logging.getLogger(__name__)

# The version of what is kept. Larger files are read each time: digesting weights takes longer.
_VERSION, _MOST_BYTES = 1, 4 << 20

# Packages whose code decides what a model is read as.
_CODE = ("reading", "graph", "operators")


def read_once(
    path: Path,
    *,
    batch: int | None,
    shapes: Mapping[str, Sequence[int | None]],
    values: Mapping[str, Any],
    name: str,
) -> Model:
    """The model in an ONNX file, as :func:`bricks.reading.read.read_model` gives it."""
    kept = None if values else _kept_file(path, batch, shapes)
    if kept is not None and (model := _loaded(kept, path, name)) is not None:
        _logger.info("%s: reading %s", name, path.resolve())
        return model
    from bricks.reading.read import read_model  # here: importing onnx takes a moment

    model = read_model(path, batch=batch, shapes=shapes, values=values, name=name)
    if kept is not None:
        from bricks.graph.payload import all_tensors, is_referenced, reference
        from bricks.graph.view import parse_model

        tensors = filter(is_referenced, all_tensors(parse_model(model.skeleton).graph))
        files = sorted({reference(tensor).location for tensor in tensors} - {path.name})
        facts = {
            "outside": [[outside, _state(model.folder / outside)] for outside in files],
            "inputs": [[name, kind.to_json()] for name, kind in model.inputs],
            "digest": model.digest,
            "rebatched": model.rebatched,
        }
        packed = zlib.compress(json.dumps(facts).encode() + b"\n" + model.skeleton, 1)
        derived_files.keep(hashlib.sha256(packed).hexdigest().encode() + b"\n" + packed, kept)
    return model


def _kept_file(
    path: Path, batch: int | None, shapes: Mapping[str, Sequence[int | None]]
) -> Path | None:
    """Where what is read of ``path`` is kept; None for what is not."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        content = path.read_bytes()
        named = json.dumps([_VERSION, path.name, batch, sorted(shapes.items()), _code()])
    except (OSError, TypeError, ValueError):  # whatever is wrong with it, reading it says so
        return None
    digest = hashlib.sha256(named.encode(errors="surrogatepass") + b"\0" + content).hexdigest()
    return derived_files.folder("models") / digest[:2] / digest


@cache
def _code() -> str:
    """A digest of the size and the time of each file of the code that reads models."""
    package = Path(__file__).parents[1]
    files = sorted(file for name in _CODE for file in (package / name).glob("*.py"))
    library = find_spec("onnx")
    if library is not None and library.origin is not None:
        files.append(Path(library.origin))
    states = [[file.name, *_state(file)] for file in files]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()


def _state(file: Path) -> list[int]:
    """The size of a file and when it was changed, also of a link itself; empty for none."""
    try:
        stats = file.lstat(), file.stat()
    except OSError:
        return []
    return [number for stat in stats for number in (stat.st_size, stat.st_mtime_ns)]


def _loaded(kept: Path, path: Path, name: str) -> Model | None:
    """The model that was kept; None if there is none that holds."""
    started = time.perf_counter()
    try:
        digest, _, packed = kept.read_bytes().partition(b"\n")
        if hashlib.sha256(packed).hexdigest().encode() != digest:
            return None
        head, _, skeleton = zlib.decompress(packed).partition(b"\n")
        facts = json.loads(head)
        folder = path.resolve().parent
        if any(_state(folder / outside) != state for outside, state in facts["outside"]):
            return None
        inputs = tuple((input_, type_from_json(kind)) for input_, kind in facts["inputs"])
    except OSError:
        return None
    derived_files.note_use(kept)
    model = Model(name, folder, skeleton, inputs, facts["digest"], rebatched=facts["rebatched"])
    return replace(model, read_s=time.perf_counter() - started)
