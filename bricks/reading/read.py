"""Read an ONNX file as a :class:`Model`: checked, normalised, with concrete input shapes.

Later stages can rely on one form: constants are initializers, functions are inlined, nodes are
sorted, every input has a producer, no weight is in memory. Properties that only a runtime can
check (operators of other domains) are accepted. Must not know runtimes, bricks or measuring.
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
from bricks.graph.form import ModelForm, form_of
from bricks.graph.input_values import literal
from bricks.graph.model import Model
from bricks.graph.model_metadata import (
    CHOOSING,
    ITEMS,
    SPECIFIED,
    checked_type,
    choosing_digests,
    json_value,
    note,
    note_weights,
    noted_weights,
)
from bricks.graph.payload import PayloadError
from bricks.graph.shapes import make_concrete
from bricks.graph.topology import check_attributes
from bricks.graph.types import ContainerType, ValueType, parse_shape
from bricks.graph.wire import skim, skim_bytes
from bricks.reading.checks import check_bulk, check_locations, checked_program, link_data_folder
from bricks.reading.digest import digest, digests_of_choosing
from bricks.reading.normal_form import drop_shapes, inlined, normalise
from bricks.reading.values import load_steering_values, tiny_weights

__all__ = ["parse_shape", "read_bytes", "read_model"]

Shapes = Mapping[str, Sequence[int | None]]

# Data folder of a model in memory: no file exists there.
_NO_FOLDER = Path(os.devnull)
# Largest payloads that a model in memory keeps inline: scales and zero points, which count.
_SENT_BYTES = 1 << 18
# Largest message of protobuf.
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
    """Read the model in the ONNX file ``path``, without its weights.

    ``shapes`` are complete shapes of inputs; ``batch`` is the first dimension of the inputs whose
    first dimension is open or 1. ``values`` are values of inputs in the form that a runtime takes
    (arrays, lists for sequences, dicts for maps, None for an absent optional), or texts as on the
    command line (``2,3``); all other inputs are synthetic. ``name`` defaults to the file's name
    without suffix. Data are next to the file; if it is a link, next to the link or to its target.
    Pipes and devices (``/dev/stdin``) are read into memory. Raises :class:`ModelError`, and
    :class:`ShapeError` if a dimension stays open or an option is invalid for the model.
    """
    started = time.perf_counter()
    source = Path(path)
    if source.is_dir():
        raise ModelError(f"{source} is a folder: give an ONNX file")
    if not source.exists():
        raise ModelError(f"{source} does not exist: give an ONNX file")
    if not source.is_file():
        title = source.name if name is None else name
        try:
            with source.open("rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
        except OSError as exc:
            raise ModelError(f"{source} cannot be read: {exc.strerror or exc}") from exc
        if len(content) > _MOST_BYTES:
            raise ModelError(f"{source} gives more than 2 GiB, which no ONNX model is: give a file")
        return read_bytes(content, title, batch=batch, shapes=shapes, values=values)
    real = source.resolve()
    title = source.stem if name is None else name
    _logger.info("%s: reading %s", title, real)
    _check_encoding(source.name, real.name, title)
    request = _ReadRequest(source, real.parent, title, batch, shapes or {}, values or {})
    model = request.read(skim(real))
    return replace(model, read_s=time.perf_counter() - started)


def read_bytes(
    content: bytes,
    name: str,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
) -> Model:
    """Read the model in ``content``, an ONNX file in memory, of which no part is written to disk.

    Large weights and external data count as missing. Options and errors are as for
    :func:`read_model`.
    """
    started = time.perf_counter()
    _check_encoding(name)
    path = Path(name.replace("/", "_").replace("\0", "_") or "model")
    skeleton = skim_bytes(content, path.name, inline_bytes=_SENT_BYTES)
    model = _ReadRequest(path, _NO_FOLDER, name, batch, shapes or {}, values or {}).read(skeleton)
    return replace(model, read_s=time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    """Request to read a model: its ``path``, the ``folder`` of its data, and the options."""

    path: Path
    folder: Path
    title: str
    batch: int | None
    shapes: Shapes
    values: Mapping[str, Any]

    def read(self, skimmed: bytes) -> Model:
        try:
            check_bulk(skimmed, self.path.name)
            proto = onnx.ModelProto()
            try:
                proto.ParseFromString(skimmed)
            except DecodeError as exc:
                raise ModelError(f"{self.path} is not an ONNX model: {first_line(exc)}") from exc
            if not proto.HasField("graph"):
                raise ModelError(f"{self.path} is not an ONNX model: it holds no graph")
            del proto.training_info[:]
            check_attributes(proto, self.path.name)
            proto = inlined(proto, self.path.name)
            return _READERS[form_of(proto)](self, proto)
        except PayloadError as exc:
            raise ModelError(f"{self.path.name}: {exc}") from exc

    def model(
        self,
        proto: onnx.ModelProto,
        folder: Path,
        inputs: tuple[tuple[str, ValueType], ...],
        *,
        rebatched: bool = False,
    ) -> Model:
        skeleton = proto.SerializeToString(deterministic=True)
        return Model(self.title, folder, skeleton, inputs, digest(proto), rebatched=rebatched)


def _read_program(request: _ReadRequest, proto: onnx.ModelProto) -> Model:
    """Read a recorded program, without normalisation."""
    if request.batch is not None or request.shapes or request.values:
        raise ShapeError(
            f"{request.path.name}: a recorded program has the shapes that it was recorded with:"
            " record it again with another batch size"
        )
    return request.model(proto, request.folder, checked_program(proto, request.path.name))


def _read_graph(request: _ReadRequest, proto: onnx.ModelProto) -> Model:
    path, folder = request.path, request.folder
    if path.is_symlink() and folder != _NO_FOLDER:
        folder = link_data_folder(proto.graph, path, folder)
    normalise(proto, path, folder)
    check_locations(proto.graph, folder)
    specified = _specified(proto.graph, request.values, path.name)
    types = {name: type_ for name, (_, type_) in specified.items()}
    inputs, rebatched = make_concrete(proto.graph, request.batch, request.shapes, path.name, types)
    # Suites store weights as what their metadata tell of them.
    try:
        noted, choosing = noted_weights(proto), choosing_digests(proto)
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(f"what is noted of its weights cannot be read: {first_line(exc)}") from exc
    # Of the metadata, the specified values and container types of inputs stay alone.
    del proto.metadata_props[:]
    kinds = dict(inputs)
    note(proto, ITEMS, {n: t.to_json() for n, t in inputs if isinstance(t, ContainerType)})
    given = {name: json_value(value, kinds[name]) for name, (value, _) in specified.items()}
    note(proto, SPECIFIED, given)
    drop_shapes(proto.graph, changed=rebatched)
    load_steering_values(proto.graph, folder, path.name)
    note_weights(proto, tiny_weights(proto.graph, folder, noted, path.name))
    try:
        note(proto, CHOOSING, digests_of_choosing(proto, folder, choosing))
    except PayloadError as exc:
        raise ModelError(f"{path.name}: {exc}") from exc
    return request.model(proto, folder, inputs, rebatched=rebatched)


_READERS = {ModelForm.PROGRAMS: _read_program, ModelForm.MODELS: _read_graph}


def _check_encoding(*names: str) -> None:
    """Raise for names that are not UTF-8: neither a model nor a plan could store them."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as exc:
            shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise ModelError(f"{shown}: this name is no valid UTF-8: rename the file") from exc


def _specified(
    graph: onnx.GraphProto, values: Mapping[str, Any], file: str
) -> dict[str, tuple[Any, ValueType]]:
    declared = {value.name: value.type for value in graph.input}
    for name in values:
        if name not in declared:
            listed = ", ".join(f"'{known}'" for known in declared) or "none"
            raise ShapeError(f"{file}: there is no input '{name}'; inputs are: {listed}")
    try:
        parsed = {
            name: literal(name, v, declared[name]) if isinstance(v, str) else v
            for name, v in values.items()
        }
        return {name: (v, checked_type(name, v, declared[name])) for name, v in parsed.items()}
    except ModelError as exc:
        raise ShapeError(f"{file}: {exc}") from exc
