"""Rebuild nine image classifiers of the zoo from the light test models of the onnx package.

The onnx package carries well-known networks whose weights are computed at run time by
``ConstantOfShape`` nodes, so that the files stay small. That suits a checker, not a benchmark: a
runtime would see hundreds of nodes that no deployed model has. This recipe turns each of those
nodes back into a weight that is declared (name, type, dimensions, place in a weights file) but
not shipped, and leaves the operators of the network as they are.

Knows the files of the onnx package only; nothing of bricks. Run from anywhere:

    python models/recipes/onnx_light.py [--out FOLDER] [--source FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx.backend import test as onnx_backend_test

REPOSITORY_MODELS = Path(__file__).resolve().parent.parent
LIGHT_MODELS = Path(onnx_backend_test.__file__).parent / "data" / "light"

# The first version in which an initializer need not be an input as well, which is what allows a
# runtime to treat it as a constant.
IR_VERSION = 4
PRODUCER = "bricks zoo"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which light model becomes which zoo model."""

    name: str
    light: str
    family: str


RECIPES = (
    Recipe("alexnet", "light_bvlc_alexnet", "AlexNet"),
    Recipe("densenet121", "light_densenet121", "DenseNet"),
    Recipe("inception_v1", "light_inception_v1", "Inception"),
    Recipe("inception_v2", "light_inception_v2", "Inception"),
    Recipe("resnet50", "light_resnet50", "ResNet"),
    Recipe("shufflenet", "light_shufflenet", "ShuffleNet"),
    Recipe("squeezenet", "light_squeezenet", "SqueezeNet"),
    Recipe("vgg19", "light_vgg19", "VGG"),
    Recipe("zfnet512", "light_zfnet512", "ZFNet"),
)


def build(recipe: Recipe, source: Path = LIGHT_MODELS) -> onnx.ModelProto:
    """The weight-free model of ``recipe``, made from its light model in the folder ``source``."""
    light = onnx.load(str(source / f"{recipe.light}.onnx"))
    graph = gs.import_onnx(light)
    for node in graph.nodes:
        if node.op == "ConstantOfShape":
            shape = tuple(int(d) for d in node.inputs[0].values)
            declare_weight(node.outputs[0], shape)
    initializers = {tensor.name for tensor in light.graph.initializer}
    graph.inputs = [tensor for tensor in graph.inputs if tensor.name not in initializers]
    graph.cleanup(remove_unused_graph_inputs=False)
    graph.ir_version = IR_VERSION
    graph.producer_name = PRODUCER

    model: onnx.ModelProto = gs.export_onnx(graph)
    leave_out_values(model, f"{recipe.name}.weights")
    check_operators(light, model)
    return model


def declare_weight(output: gs.Variable, shape: tuple[int, ...]) -> None:
    """Make the output of a constant-making node a weight of its own; the node is left unused."""
    tensor = onnx.TensorProto(name=output.name, data_type=onnx.TensorProto.FLOAT, dims=shape)
    output.inputs.clear()
    output.to_constant(gs.ir.tensor.LazyValues(tensor))


def leave_out_values(model: onnx.ModelProto, location: str) -> None:
    """Replace the values of all floating-point weights by a place in the file ``location``.

    Integer constants steer shapes, so they stay. Places are given out in the order of the
    initializers, without gaps, so that a file of random bytes of the right length will do.
    """
    offset = 0
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        length = 4 * math.prod(tensor.dims)
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


def check_operators(light: onnx.ModelProto, model: onnx.ModelProto) -> None:
    """Raise ``ValueError`` unless ``model`` has the operators, inputs and outputs of ``light``."""
    initializers = {tensor.name for tensor in light.graph.initializer}
    operators = [node for node in light.graph.node if node.op_type != "ConstantOfShape"]
    inputs = [value for value in light.graph.input if value.name not in initializers]
    same = (
        operators == list(model.graph.node)
        and inputs == list(model.graph.input)
        and list(light.graph.output) == list(model.graph.output)
        and list(light.opset_import) == list(model.opset_import)
    )
    if not same:
        raise ValueError(f"{model.graph.name}: more than the weights would change")


def entry(recipe: Recipe, model: onnx.ModelProto, content: bytes) -> dict[str, Any]:
    """What the manifest says about a model: where it comes from and what it takes."""
    weights = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    return {
        "name": recipe.name,
        "version": 1,
        "task": "image classification",
        "family": recipe.family,
        "framework": "caffe2",
        "source": f"onnx package, backend/test/data/light/{recipe.light}.onnx",
        "inputs": {value.name: input_type(value) for value in model.graph.input},
        "parameters": sum(math.prod(tensor.dims) for tensor in weights),
        "file": f"{recipe.name}.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def input_type(value: onnx.ValueInfoProto) -> list[Any]:
    """``[dtype, [d0, d1, …]]`` of a graph input whose shape is concrete."""
    tensor = value.type.tensor_type
    return [
        onnx.TensorProto.DataType.Name(tensor.elem_type),
        [dim.dim_value for dim in tensor.shape.dim],
    ]


def rebuild(out: Path, source: Path = LIGHT_MODELS) -> list[dict[str, Any]]:
    """Write all models and the manifest into ``out``; returns the entries of these models.

    Entries that other recipes put into the manifest are kept.
    """
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for recipe in RECIPES:
        model = build(recipe, source)
        content = model.SerializeToString(deterministic=True)
        (out / f"{recipe.name}.onnx").write_bytes(content)
        entries.append(entry(recipe, model, content))

    manifest = out / "manifest.json"
    others = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else []
    merged = {item["name"]: item for item in [*others, *entries]}
    lines = json.dumps([merged[name] for name in sorted(merged)], indent=1)
    manifest.write_text(lines + "\n", encoding="utf-8")
    return entries


def main() -> None:
    """Rebuild the models and say what was written."""
    parser = argparse.ArgumentParser(description="Rebuild the zoo's image classifiers.")
    parser.add_argument("--out", type=Path, default=REPOSITORY_MODELS)
    parser.add_argument("--source", type=Path, default=LIGHT_MODELS)
    arguments = parser.parse_args()
    for item in rebuild(arguments.out, arguments.source):
        print(f"{item['name']:14} {item['parameters']:>12,} parameters  {item['sha256'][:12]}")


if __name__ == "__main__":
    main()
