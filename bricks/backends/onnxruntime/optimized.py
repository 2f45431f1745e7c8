"""The graph that ONNX Runtime executes, with fusions, folded constants and blocked layouts.

The runtime saves its optimised model, and the weights are discarded as they are written; in large
models, unchanged weights stay references. Folded or reordered weights are new tensors and occupy
memory until the model is saved. The graph is valid only on processors with the same blocked layout,
so a plan made from it belongs to a system. Must not know bricks or measuring.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort

from bricks.backends.onnxruntime.sessions import (
    NONE,
    create_session,
    session_options,
    static_type,
    unstated,
)
from bricks.backends.onnxruntime.synthetic_data import SurrogateWeights
from bricks.backends.onnxruntime.values import translated
from bricks.errors import BackendError
from bricks.graph.onnx_types import type_proto
from bricks.graph.payload import is_referenced, read_referenced
from bricks.graph.subgraphs import hoist
from bricks.graph.topology import producers, used_values
from bricks.graph.types import ValueType
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.graph.wire import skim

# Smaller constants stay inside the optimised model with values: they may be steering values.
INLINE_BYTES = 1024

# Free space below this counts as none.
_ROOM_BYTES = 1 << 20

# Models with at most this many bytes of weights are saved with weights, which are discarded at
# 0.7 s per GB. Only then does the runtime always save nodes in execution order.
_WRITTEN_BYTES = 2 << 30

_FOLDER = "session.model_external_initializers_file_folder_path"
_SAVE_TO = "session.optimized_model_external_initializers_file_name"
_SAVE_FROM = "session.optimized_model_external_initializers_min_size_in_bytes"


def save_optimized(
    proto: onnx.ModelProto, surrogates: SurrogateWeights, level: str
) -> tuple[onnx.ModelProto, list[str]]:
    """The optimised model without weights, its nodes in execution order.

    The second result names the inputs whose shapes the runtime refused.
    """
    size_bytes = sum(type_.size_bytes for type_ in without_values(proto).values())
    with surrogates.of(proto) as (referring, folder):
        if size_bytes > _WRITTEN_BYTES:
            with suppress(BackendError):  # the new weights do not fit into one message
                optimized, refused = _saved(
                    referring, {}, _mapping(_saving(Path(), level), folder), folder
                )
                if _same_nodes(referring, optimized):
                    _put_in_execution_order(optimized.graph)
                return optimized, refused
        # A link, because the runtime deletes the file when saving fails.
        external = folder / "new"
        external.symlink_to(os.devnull)
        return _saved(referring, {}, _mapping(_saving(external, level), folder), folder)


def save_with_weights(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], level: str
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The optimised model and its weights."""
    with tempfile.TemporaryDirectory(prefix="bricks-") as name:
        folder = Path(name)
        optimized, _ = _saved(proto, weights, _saving(folder / "new", level), folder)
        arrays = {}
        for tensor in optimized.graph.initializer:
            if is_referenced(tensor):
                values = read_referenced(folder, tensor)
                assert values is not None  # the session has just written the file
                arrays[tensor.name] = values
    return optimized, arrays


def _saving(external: Path, level: str) -> ort.SessionOptions:
    """Options of a session that saves its optimised model, and weights to ``external`` if named."""
    options = session_options(level)
    options.add_session_config_entry("session.disable_prepacking", "1")
    if external.name:
        options.add_session_config_entry(_SAVE_TO, external.name)
        options.add_session_config_entry(_SAVE_FROM, str(INLINE_BYTES))
    return options


def _mapping(options: ort.SessionOptions, folder: Path) -> ort.SessionOptions:
    """``options``, changed for a session that maps its weights from ``folder``, without copies."""
    options.add_session_config_entry(_FOLDER, str(folder))
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_mem_pattern = False  # would reserve the memory of all weights at once
    return options


def _saved(
    proto: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    options: ort.SessionOptions,
    folder: Path,
) -> tuple[onnx.ModelProto, list[str]]:
    path = folder / "optimized.onnx"
    options.optimized_model_filepath = str(path)
    try:
        refused = unstated(proto, create_session(proto, weights, options))
    except BackendError as error:
        if shutil.disk_usage(folder).free < _ROOM_BYTES:
            raise BackendError(
                f"the disk of temporary files ({tempfile.gettempdir()}) is full:"
                " free some space, or set TMPDIR"
            ) from error
        raise
    with translated("saving the optimised model"):
        optimized = parse_model(skim(path, attributes=False))
    # Folding leaves constants in subgraphs, to which a session accepts no weights.
    hoist(optimized.graph)
    stated = {value.name: value for value in proto.graph.input}
    for value in optimized.graph.input:
        if value.name in refused:
            value.CopyFrom(stated[value.name])
    return optimized, refused


def _same_nodes(a: onnx.ModelProto, b: onnx.ModelProto) -> bool:
    """Whether the nodes are unchanged: then the runtime saved them in their original order."""
    before, after = (
        [(node.op_type, tuple(node.output)) for node in model.graph.node] for model in (a, b)
    )
    return before == after


def _put_in_execution_order(graph: onnx.GraphProto) -> None:
    """Order nodes as the runtime executes them: depth first from the outputs, the last one first.

    The runtime usually saves a graph that it has changed in this order already.
    """
    nodes = list(graph.node)
    makers = producers(nodes)
    sources = [sorted({makers[n] for n in used_values(node) if n in makers}) for node in nodes]
    feeding = {source for of_node in sources for source in of_node}
    waiting = [(i, False) for i in range(len(nodes)) if i not in feeding]
    seen: set[int] = set()
    order = []
    while waiting:
        i, sources_done = waiting.pop()
        if sources_done:
            order.append(nodes[i])
        elif i not in seen:
            seen.add(i)
            waiting.append((i, True))
            waiting += [(source, False) for source in sources[i] if source not in seen]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
    del graph.node[:]
    graph.node.extend(copies)


def inferred_types(
    proto: onnx.ModelProto, surrogates: SurrogateWeights
) -> tuple[dict[str, ValueType], list[str]]:
    """Types of all values as the runtime infers them, and the values whose type stays open.

    ``onnx.shape_inference`` does not know the runtime's own operators. The runtime does, and
    reports the types of a session's outputs, so this function makes every value an output.
    """
    with surrogates.of(proto) as (exposed, folder):
        stated = {o.name for o in exposed.graph.output}
        for node in exposed.graph.node:
            exposed.graph.output.extend(
                onnx.ValueInfoProto(name=name)
                for name in node.output
                if name and name not in stated
            )
        options = _mapping(session_options(NONE), folder)
        outputs = create_session(exposed, {}, options).get_outputs()
    graph = graph_of(proto)
    types = {name: graph.types[name] for name in (*graph.inputs, *graph.initializers)}
    open_values = []
    for value in outputs:
        type_ = static_type(value)
        if value.name in types:
            continue
        if type_ is None:
            open_values.append(value.name)
        else:
            types[value.name] = type_
    scalars = _scalars(proto, types) if open_values else {}
    types.update((name, scalars[name]) for name in open_values if name in scalars)
    return types, [name for name in open_values if name not in scalars]


def _scalars(proto: onnx.ModelProto, known: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Scalars, which the runtime does not distinguish from values of unknown rank."""
    typed = onnx.ModelProto()
    typed.CopyFrom(proto)
    del typed.graph.value_info[:]
    stated = {*(i.name for i in proto.graph.input), *(o.name for o in proto.graph.output)}
    for name, type_ in known.items():
        if name not in stated:
            typed.graph.value_info.append(onnx.ValueInfoProto(name=name, type=type_proto(type_)))
    try:
        inferred = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    except Exception:  # of no documented class; on failure, one run determines the open types
        return {}
    return {name: t for name, t in graph_of(inferred).types.items() if t.shape == ()}
