"""The graph that ONNX Runtime really executes: fusions, folded constants, blocked layouts.

The runtime saves its optimised model, whose weights are thrown away as they are written, or kept
where a caller wants to compute with them. Until then they are in memory: what the runtime folds or
reorders is written anew, whatever the weights it was given share. The graph holds only on
processors with the same blocked layout, so a plan made from it belongs to a system.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
from onnx import numpy_helper

from bricks.backends.onnxruntime.sessions import (
    DTYPES,
    create_session,
    session_options,
    stand_ins,
    static_type,
    translated,
)
from bricks.errors import BackendError
from bricks.graph.domains import Range, integer_ranges
from bricks.graph.payload import is_referenced, numpy_dtype, type_of
from bricks.graph.subgraphs import hoist
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, parse_model, without_values

# Smaller constants stay inside the optimised model, with values: they may steer results.
INLINE_BYTES = 1024

# Less than this is no room at all.
_ROOM_BYTES = 1 << 20


def structural_weights(proto: onnx.ModelProto, pool: Pool) -> dict[str, np.ndarray]:
    """Weights to understand a graph with; those whose values say nothing share one memory.

    These are floats and 8-bit integers of any value (quantised data): all together they take as
    much memory as the largest of them. Other integers are drawn from ``pool``, each array its own,
    within what the graph can take.
    """
    types = without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(graph_of(proto), integers)
    data = {n: t for n, t in types.items() if t.floating or _any_byte(t, ranges.get(n))}
    weights = stand_ins(data)
    for name, type_ in types.items():
        if name not in data:
            weights[name] = pool.weight(name, type_, ranges.get(name))
    return weights


def _any_byte(type_: TensorType, range_: Range | None) -> bool:
    if type_.dtype not in ("INT8", "UINT8") or range_ is None:
        return False
    return range_.high - range_.low == 256


def save_optimized(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], *, keep: bool
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The optimised model without weights; with ``keep`` also the weights it wants."""
    with tempfile.TemporaryDirectory(prefix="bricks-") as name:
        folder = Path(name)
        path, external = folder / "optimized.onnx", "weights.bin"
        if not keep:
            # A link, because the runtime removes the file itself where saving fails.
            (folder / external).symlink_to(os.devnull)
        options = session_options(optimize=True)
        options.optimized_model_filepath = str(path)
        entries = {
            "session.optimized_model_external_initializers_file_name": external,
            "session.optimized_model_external_initializers_min_size_in_bytes": str(INLINE_BYTES),
            "session.disable_prepacking": "1",
        }
        for entry, value in entries.items():
            options.add_session_config_entry(entry, value)
        try:
            create_session(proto, weights, options)
        except BackendError as error:
            if shutil.disk_usage(folder).free < _ROOM_BYTES:
                place = tempfile.gettempdir()
                raise BackendError(
                    f"the disk of temporary files ({place}) is full: free some space, or set TMPDIR"
                ) from error
            raise
        with translated("saving the optimised model"):
            optimized = parse_model(path.read_bytes())
        # Folding leaves constants in subgraphs, which have no place where weights are given.
        hoist(optimized.graph)
        arrays = {}
        for tensor in optimized.graph.initializer if keep else ():
            if is_referenced(tensor):
                storage = numpy_dtype(type_of(tensor).dtype)
                arrays[tensor.name] = numpy_helper.to_array(tensor, str(folder)).view(storage)
    return optimized, arrays


def inferred_types(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, TensorType], list[str]]:
    """Types of all values as the runtime infers them, and the values whose shape stays open.

    ``onnx.shape_inference`` does not know the runtime's own operators. The runtime does, and
    tells the types of a session's outputs: so every value is made one.
    """
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    outputs = {o.name for o in exposed.graph.output}
    for node in exposed.graph.node:
        exposed.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in node.output if name and name not in outputs
        )
    options = session_options(optimize=False)
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = create_session(exposed, weights, options)
    graph = graph_of(proto)
    types = {name: graph.types[name] for name in (*graph.inputs, *graph.initializers)}
    open_values = []
    for value in session.get_outputs():
        if value.type not in DTYPES:
            raise BackendError(f"value {value.name!r} is a {value.type}, not a tensor of numbers")
        type_ = static_type(value)
        if type_ is None:
            open_values.append(value.name)
        else:
            types[value.name] = type_
    scalars = _scalars(proto, types) if open_values else {}
    types.update((name, scalars[name]) for name in open_values if name in scalars)
    return types, [name for name in open_values if name not in scalars]


def _scalars(proto: onnx.ModelProto, known: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Values of no dimensions, which the runtime does not tell from those of unknown rank."""
    typed = onnx.ModelProto()
    typed.CopyFrom(proto)
    del typed.graph.value_info[:]
    stated = {*(i.name for i in proto.graph.input), *(o.name for o in proto.graph.output)}
    for name, type_ in known.items():
        if name not in stated:
            number = onnx.TensorProto.DataType.Value(type_.dtype)
            info = onnx.helper.make_tensor_value_info(name, number, type_.shape)
            typed.graph.value_info.append(info)
    try:
        inferred = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    except Exception:  # of no documented class; without it, one run shows what is open
        return {}
    return {name: t for name, t in graph_of(inferred).types.items() if t.shape == ()}
