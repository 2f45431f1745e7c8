"""Read an ONNX file as a :class:`Model`: checked, normalised, with concrete input shapes.

Later stages can rely on one form: constants are initializers, functions are inlined, nodes are
sorted, every input has a producer, no weight is in memory. Must not know runtimes, bricks or
measuring; properties that only a runtime can check (operators of other domains) are accepted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types

from bricks.errors import ModelError, ShapeError, first_line
from bricks.graph.containers import ContainerType, ValueType
from bricks.graph.form import ModelForm, form_of
from bricks.graph.input_values import literal
from bricks.graph.model import Model
from bricks.graph.model_metadata import (
    GIVEN,
    ITEMS,
    checked_type,
    note,
    note_weights,
    noted_weights,
    plain,
)
from bricks.graph.payload import PayloadError
from bricks.graph.shapes import make_concrete
from bricks.graph.sizes import parse_shape
from bricks.graph.sketch import Sketch
from bricks.graph.topology import check_attributes
from bricks.graph.wire import skim, skim_bytes
from bricks.reading.bulk import check_bulk
from bricks.reading.data_folder import beside_link, check_places
from bricks.reading.digest import digest
from bricks.reading.functions import inlined
from bricks.reading.loaded_values import load_steering_values
from bricks.reading.normal_form import drop_shapes, normalise
from bricks.reading.program_file import checked_program
from bricks.reading.tiny_weights import tiny_weights

__all__ = ["parse_shape", "read_bytes", "read_model"]

Shapes = Mapping[str, Sequence[int | None]]

# No folder: data of a model in memory is looked for there, and never found.
_NOWHERE = Path(os.devnull)
# Of a model in memory, payloads up to here are kept: scales and zero points, which count.
_SENT_BYTES = 1 << 18

# A message of protocol buffers is no larger.
_MOST_BYTES = (1 << 31) - 1

_logger = logging.getLogger(__name__)


def read_model(
    path: str | Path,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Model:
    """The model in the ONNX file ``path``, without its weights.

    ``shapes`` gives complete shapes of inputs; ``batch`` is the first dimension of the inputs whose
    first dimension is open or 1. ``values`` holds contents of inputs in the form that a runtime
    takes (arrays, lists for sequences, dicts for maps, None for an absent optional), or texts as on
    the command line (``2,3``); all other inputs are synthetic. ``name`` defaults to the file's name
    without suffix. Data are beside the file; if it is a link, beside the link or beside the file
    itself. What is no file but can be read once (``/dev/stdin``) is read into memory. Raises
    :class:`ModelError`, and :class:`ShapeError` if a dimension stays open or an option is invalid
    for the model.
    """
    started = time.perf_counter()
    given = Path(path)
    if given.is_dir():
        raise ModelError(f"{given} is a folder: give an ONNX file")
    if not given.exists():
        raise ModelError(f"{given} does not exist: give an ONNX file")
    if not given.is_file():
        content, called = _read_once(given), given.name if name is None else name
        return read_bytes(content, called, batch=batch, shapes=shapes, values=values)
    real = given.resolve()
    title = given.stem if name is None else name
    _logger.info("%s: reading %s", title, real)
    _check_encoding(given.name, real.name, title)
    wanted = _Wanted(given, real.parent, title, batch, shapes or {}, values or {})
    model = wanted.read(skim(real))
    return replace(model, read_s=time.perf_counter() - started)


def _read_once(path: Path) -> bytes:
    """All of a pipe or a device; at most as much as ONNX can hold in one message."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise ModelError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    if len(content) > _MOST_BYTES:
        raise ModelError(f"{path} gives more than 2 GiB, which no ONNX model is: give a file")
    return content


def read_bytes(
    content: bytes,
    name: str,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
) -> Model:
    """The model in ``content``, an ONNX file in memory, of which nothing is written anywhere.

    Data beside the model, and large weights in it, count as missing, as they may be: see
    :func:`read_model`, which also lists the errors.
    """
    started = time.perf_counter()
    _check_encoding(name)
    given = Path(name.replace("/", "_").replace("\0", "_") or "model")
    skeleton = skim_bytes(content, given.name, inline_bytes=_SENT_BYTES)
    model = _Wanted(given, _NOWHERE, name, batch, shapes or {}, values or {}).read(skeleton)
    return replace(model, read_s=time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A model to be read: the file that was given, the ``folder`` of its data, and the options."""

    given: Path
    folder: Path
    title: str
    batch: int | None
    shapes: Shapes
    values: Mapping[str, Any]

    def read(self, skimmed: bytes) -> Model:
        """The model, from its file without the weights."""
        try:
            proto = _parse(skimmed, self.given)
            return _READERS[form_of(proto)](self, proto)
        except PayloadError as exc:
            raise ModelError(f"{self.given.name}: {exc}") from exc

    def model(
        self,
        proto: onnx.ModelProto,
        folder: Path,
        inputs: tuple[tuple[str, ValueType], ...],
        *,
        rebatched: bool = False,
    ) -> Model:
        """The model that ``proto`` is, whose data lie in ``folder``."""
        skeleton = proto.SerializeToString(deterministic=True)
        return Model(self.title, folder, skeleton, inputs, digest(proto), rebatched=rebatched)


def _read_program(wanted: _Wanted, proto: onnx.ModelProto) -> Model:
    """A recorded program, as it was recorded."""
    if wanted.batch is not None or wanted.shapes or wanted.values:
        raise ShapeError(
            f"{wanted.given.name}: a recorded program has the shapes that it was recorded with:"
            " record it again with another batch size"
        )
    return wanted.model(proto, wanted.folder, checked_program(proto, wanted.given.name))


def _read_graph(wanted: _Wanted, proto: onnx.ModelProto) -> Model:
    """An ONNX model, normalised and with concrete shapes."""
    given, folder = wanted.given, wanted.folder
    if given.is_symlink() and folder != _NOWHERE:
        folder = beside_link(proto.graph, given, folder)
    normalise(proto, given, folder)
    check_places(proto.graph, folder)
    held = _given(proto.graph, wanted.values, given.name)
    types = {name: type_ for name, (_, type_) in held.items()}
    inputs, rebatched = make_concrete(proto.graph, wanted.batch, wanted.shapes, given.name, types)
    noted = _noted_weights(proto)
    _note_inputs(proto, dict(inputs), {name: value for name, (value, _) in held.items()})
    drop_shapes(proto.graph, changed=rebatched)
    load_steering_values(proto.graph, folder, given.name)
    note_weights(proto, tiny_weights(proto.graph, folder, noted))
    return wanted.model(proto, folder, inputs, rebatched=rebatched)


_READERS = {ModelForm.PROGRAMS: _read_program, ModelForm.MODELS: _read_graph}


def _check_encoding(*names: str) -> None:
    """Raise for names that are not UTF-8: neither a model nor a plan could store them."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as exc:
            shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise ModelError(f"{shown}: this name is no valid UTF-8: rename the file") from exc


def _parse(skeleton: bytes, path: Path) -> onnx.ModelProto:
    check_bulk(skeleton, path.name)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(skeleton)
    except DecodeError as exc:
        raise ModelError(f"{path} is not an ONNX model: {first_line(exc)}") from exc
    if not proto.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it holds no graph")
    del proto.training_info[:]
    check_attributes(proto, path.name)
    return inlined(proto, path.name)


def _given(
    graph: onnx.GraphProto, values: Mapping[str, Any], file: str
) -> dict[str, tuple[Any, ValueType]]:
    """The given values of inputs, with their types."""
    declared = {value.name: value.type for value in graph.input}
    for name in values:
        if name not in declared:
            listed = ", ".join(f"'{known}'" for known in declared) or "none"
            raise ShapeError(f"{file}: there is no input '{name}'; inputs are: {listed}")
    try:
        given = {
            name: literal(name, v, declared[name]) if isinstance(v, str) else v
            for name, v in values.items()
        }
        return {name: (v, checked_type(name, v, declared[name])) for name, v in given.items()}
    except ModelError as exc:
        raise ShapeError(f"{file}: {exc}") from exc


def _note_inputs(
    proto: onnx.ModelProto, types: Mapping[str, ValueType], values: Mapping[str, Any]
) -> None:
    """Write the given values and types of inputs to the metadata; remove all other metadata."""
    del proto.metadata_props[:]
    containers = {n: t.to_json() for n, t in types.items() if isinstance(t, ContainerType)}
    note(proto, ITEMS, containers)
    note(proto, GIVEN, {name: plain(value, types[name]) for name, value in values.items()})


def _noted_weights(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """Sketches of weights that were noted while their data were present, as suites store them."""
    try:
        return noted_weights(proto)
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(f"what is noted of its weights cannot be read: {first_line(exc)}") from exc
