"""Models that a program holds: written to a file, so that they are read like any other.

Reading works on files, where weights can stay. A model of onnx-graphsurgeon, edited in memory, is
exported first; that library is asked for only where somebody comes with its graph. Must not know
what becomes of the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx

from bricks.errors import ModelError, UsageError, first_line

# What protobuf can serialise at once; weights of larger models go to a file beside the model.
_MAX_BYTES = (1 << 31) - (1 << 20)


def is_graph(model: object) -> bool:
    """Whether ``model`` is a ``Graph`` of onnx-graphsurgeon."""
    kind = type(model)
    return kind.__module__.partition(".")[0] == "onnx_graphsurgeon" and kind.__name__ == "Graph"


def proto_of(model: Any) -> onnx.ModelProto:
    """The ``ModelProto`` of a model in memory: itself, or what onnx-graphsurgeon exports.

    Raises :class:`UsageError` for anything else, and :class:`ModelError` for a graph that cannot be
    exported.
    """
    if isinstance(model, onnx.ModelProto):
        return model
    if not is_graph(model):
        raise UsageError(
            f"a {type(model).__name__} is no model: give the path of an ONNX file, a zoo name, an"
            " onnx.ModelProto or an onnx_graphsurgeon.Graph"
        )
    import onnx_graphsurgeon as gs

    try:
        exported: onnx.ModelProto = gs.export_onnx(model)
    except Exception as exc:  # whatever that library does with a graph that makes no model
        raise ModelError(
            f"the graph '{model.name}' cannot be exported: {first_line(exc)}: repair it, or see"
            " onnx_graphsurgeon.Graph.cleanup"
        ) from exc
    return exported


def title_of(proto: onnx.ModelProto) -> str:
    """What a model in memory is called: its graph's name, as far as that can name a file."""
    return re.sub(r"[^\w.+-]+", "_", proto.graph.name).strip("._") or "model"


def write_model(proto: onnx.ModelProto, folder: Path, name: str) -> Path:
    """``proto`` as a file in ``folder``, which is made, with its weights in it or beside it.

    Weights that it only refers to stay out, as if their file were missing. Raises
    :class:`ModelError` where there is no graph, or no room.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: the ModelProto holds no graph: build or load one first")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    try:
        if proto.ByteSize() < _MAX_BYTES:
            path.write_bytes(proto.SerializeToString())
        else:
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)  # saving moves the weights out of the model that it is given
            onnx.save_model(copy, path, save_as_external_data=True, location=f"{name}.weights")
    except OSError as exc:
        raise ModelError(f"{name}: it cannot be written to {folder}: {exc.strerror}") from exc
    return path
