"""Write models that are in memory to files, which are then read like any other model.

Reading works on files, because weights can stay on disk. A model that was edited with
onnx-graphsurgeon is exported first; that library is needed only for its own graphs. Must not know
how the file is used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # has no types

from bricks.errors import ModelError, UsageError, first_line


def proto_of(model: Any) -> onnx.ModelProto:
    """Return the ``ModelProto`` of a model in memory: itself, or the export of onnx-graphsurgeon.

    Raises :class:`UsageError` for anything else, and :class:`ModelError` for a graph that cannot be
    exported.
    """
    if isinstance(model, onnx.ModelProto):
        return model
    kind = type(model)
    if kind.__module__.partition(".")[0] != "onnx_graphsurgeon" or kind.__name__ != "Graph":
        raise UsageError(
            f"a {kind.__name__} is no model: give the path of an ONNX file, a zoo name, an"
            " onnx.ModelProto or an onnx_graphsurgeon.Graph"
        )
    import onnx_graphsurgeon as gs

    try:
        exported: onnx.ModelProto = gs.export_onnx(model)
    except Exception as exc:  # the library raises various errors for invalid graphs
        raise ModelError(
            f"the graph '{model.name}' cannot be exported: {first_line(exc)}: repair it, or see"
            " onnx_graphsurgeon.Graph.cleanup"
        ) from exc
    return exported


def title_of(proto: onnx.ModelProto) -> str:
    """Return the graph's name of a model in memory, without characters invalid in file names."""
    return re.sub(r"[^\w.+-]+", "_", proto.graph.name).strip("._") or "model"


def write_model(proto: onnx.ModelProto, folder: Path, name: str) -> Path:
    """Write ``proto`` to a file in ``folder``, which is created; return the path.

    Weights go into a second file next to it, since protobuf serialises no more than 2 GiB. Weights
    that ``proto`` only refers to are omitted, as if their file were missing. Raises
    :class:`ModelError` if there is no graph, or no free space.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: the ModelProto holds no graph: build or load one first")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)  # saving moves the weights out of its argument
    try:
        onnx.save_model(copy, path, save_as_external_data=True, location=f"{name}.weights")
    except OSError as exc:
        raise ModelError(f"{name}: it cannot be written to {folder}: {exc.strerror}") from exc
    except EncodeError as exc:  # of weights that are lists of numbers, which stay in the model
        raise ModelError(
            f"{name}: it is larger than 2 GiB without its raw weights: give the path of a file"
        ) from exc
    return path
