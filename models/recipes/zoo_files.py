"""The form that models have in the zoo: weight-free files, each with its entry for the manifest.

Recipes bring networks from many places into this one form. Knows ONNX files; nothing of where a
network comes from, and nothing of bricks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

# Equal constants of more bytes than this are kept once: exporters write a copy for each use.
MOST_REPEATED = 4096

# Floating-point constants of so few numbers (an epsilon, a scale) are part of what a network
# computes, and stay.
MAX_KEPT = 16

_FLOATS = {
    onnx.TensorProto.FLOAT: 4,
    onnx.TensorProto.DOUBLE: 8,
    onnx.TensorProto.FLOAT16: 2,
    onnx.TensorProto.BFLOAT16: 2,
}


@dataclass(frozen=True, slots=True)
class Shipped:
    """A model of the zoo: what the manifest says of it beyond what its file shows.

    ``recipe`` is the name of the recipe's file without ``.py``; ``build`` makes the model, in the
    form that it is shipped in. ``kind`` is what a run of it is, if not an inference;
    ``parameters`` counts them where weights are packed.
    """

    name: str
    version: int
    task: str
    family: str
    framework: str
    source: str
    recipe: str
    build: Callable[[], onnx.ModelProto]
    kind: str | None = None
    parameters: Callable[[], int] | None = None


def leave_out_values(model: onnx.ModelProto, location: str, *, most_kept: int = MAX_KEPT) -> None:
    """Replace the values of floating-point weights by a place in the file ``location``.

    Weights of up to ``most_kept`` numbers stay, and so do integers, for they steer shapes. Places
    are given out in the order of the initializers, without gaps, so that a file of random bytes of
    the right length will do.
    """
    offset = 0
    for tensor in model.graph.initializer:
        count = math.prod(tensor.dims)
        if tensor.data_type not in _FLOATS or count <= most_kept:
            continue
        length = _FLOATS[tensor.data_type] * count
        place = {"location": location, "offset": str(offset), "length": str(length)}
        declared = onnx.TensorProto(
            name=tensor.name,
            data_type=tensor.data_type,
            dims=tensor.dims,
            data_location=onnx.TensorProto.EXTERNAL,
            external_data=[onnx.StringStringEntryProto(key=k, value=v) for k, v in place.items()],
        )
        tensor.CopyFrom(declared)
        offset += length


def keep_equal_constants_once(model: onnx.ModelProto) -> None:
    """Let all uses of equal large constants, whose values stay, refer to the first of them.

    A table of indices that every layer has a copy of can be most of a file. For constants of the
    main graph alone; call it after :func:`leave_out_values`.
    """
    graph = model.graph
    first: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    shown = {value.name for value in (*graph.input, *graph.output)}
    for tensor in graph.initializer:
        content = onnx.TensorProto()
        content.CopyFrom(tensor)
        content.ClearField("name")
        stays = tensor.data_location != onnx.TensorProto.EXTERNAL
        if stays and tensor.name not in shown and content.ByteSize() > MOST_REPEATED:
            kept = first.setdefault(content.SerializeToString(deterministic=True), tensor.name)
            if kept != tensor.name:
                renamed[tensor.name] = kept
    for node in graph.node:
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise ValueError(f"{graph.name}: node {node.name} holds a graph of its own")
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
    unique = [tensor for tensor in graph.initializer if tensor.name not in renamed]
    del graph.initializer[:]
    graph.initializer.extend(unique)


def leave_out_notes(model: onnx.ModelProto) -> None:
    """Remove what exporters write down for themselves: notes, traces, shapes of inner values."""
    del model.graph.value_info[:]
    graph = model.graph
    parts = (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output)
    for part in parts:
        for field in ("doc_string", "metadata_props"):
            if field in part.DESCRIPTOR.fields_by_name:  # older versions of onnx have fewer
                part.ClearField(field)


def write(folder: Path, shipped: Shipped) -> dict[str, Any]:
    """Build a model; write ``NAME.onnx`` and its entry for the manifest, ``NAME.json``.

    The entry, which is also returned, lacks what takes bricks to find out (FLOPs).
    """
    model = shipped.build()
    content = model.SerializeToString(deterministic=True)
    entry = {
        "name": shipped.name,
        "version": shipped.version,
        "task": shipped.task,
        "family": shipped.family,
        "framework": shipped.framework,
        "source": shipped.source,
        "recipe": shipped.recipe,
        "inputs": {value.name: input_type(value) for value in model.graph.input},
        "parameters": parameters(model) if shipped.parameters is None else shipped.parameters(),
        "file": f"{shipped.name}.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    if shipped.kind is not None:
        entry["kind"] = shipped.kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{shipped.name}.onnx").write_bytes(content)
    (folder / f"{shipped.name}.json").write_text(json.dumps(entry), encoding="utf-8")
    return entry


def parameters(model: onnx.ModelProto) -> int:
    """The numbers in floating-point weights."""
    weights = [t for t in model.graph.initializer if t.data_type in _FLOATS]
    return sum(math.prod(tensor.dims) for tensor in weights)


def input_type(value: onnx.ValueInfoProto) -> list[Any]:
    """``[dtype, [d0, d1, …]]`` of a graph input; an open dimension is its name."""
    tensor = value.type.tensor_type
    return [
        onnx.TensorProto.DataType.Name(tensor.elem_type),
        [dim.dim_param or dim.dim_value for dim in tensor.shape.dim],
    ]


def main(description: str, models: Sequence[Shipped]) -> None:
    """The command line of a recipe: build its models, or those that are named.

    One that cannot be built doesn't stop the others: its ``NAME.json`` holds the error instead.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder for what is built")
    known = [shipped.name for shipped in models]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"this recipe has no {', '.join(unknown)}")
    for shipped in models:
        if arguments.names and shipped.name not in arguments.names:
            continue
        try:
            entry = write(arguments.out, shipped)
        except Exception as exc:  # exporters raise errors of every kind
            failed = {"name": shipped.name, "error": f"{type(exc).__name__}: {exc}"}
            arguments.out.mkdir(parents=True, exist_ok=True)
            described = arguments.out / f"{shipped.name}.json"
            described.write_text(json.dumps(failed), encoding="utf-8")
            print(f"{shipped.name}: {failed['error']}", flush=True)
        else:
            print(f"{shipped.name} {entry['sha256'][:12]}", flush=True)
