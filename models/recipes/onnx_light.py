"""Rebuild nine image classifiers of the zoo from the light test models of the onnx package.

The onnx package carries well-known networks whose weights are computed at run time by
``ConstantOfShape`` nodes, so that the files stay small. That suits a checker, not a benchmark: a
runtime would see hundreds of nodes that no deployed model has. This recipe turns each of those
nodes back into a weight that is declared (name, type, dimensions, place in a weights file) but
not shipped, and leaves the operators of the network as they are. Where a Reshape fixes the batch,
it is made to take it from its input, so that the batch can be changed.

Knows the files of the onnx package only; nothing of bricks. Needs its extra ``recipes``:

    bricks zoo build alexnet
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.numpy_helper
import onnx.shape_inference
import onnx_graphsurgeon as gs
from onnx.backend import test as onnx_backend_test
from zoo_files import Shipped, leave_out_values, main

LIGHT_MODELS = Path(onnx_backend_test.__file__).parent / "data" / "light"

# The first version in which an initializer need not be an input as well, which is what allows a
# runtime to treat it as a constant.
IR_VERSION = 4
PRODUCER = "bricks zoo"
BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which light model becomes which zoo model."""

    name: str
    light: str
    family: str
    version: int = 1


RECIPES = (
    Recipe("alexnet", "light_bvlc_alexnet", "AlexNet", version=2),
    Recipe("densenet121", "light_densenet121", "DenseNet"),
    Recipe("inception_v1", "light_inception_v1", "Inception", version=2),
    Recipe("inception_v2", "light_inception_v2", "Inception", version=2),
    Recipe("resnet50", "light_resnet50", "ResNet", version=2),
    Recipe("shufflenet", "light_shufflenet", "ShuffleNet", version=2),
    Recipe("squeezenet", "light_squeezenet", "SqueezeNet"),
    Recipe("vgg19", "light_vgg19", "VGG", version=2),
    Recipe("zfnet512", "light_zfnet512", "ZFNet", version=2),
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
    open_batch(model)
    check_batch(model)
    leave_out_values(model, f"{recipe.name}.weights", most_kept=0)
    check_operators(light, model)
    return model


def declare_weight(output: gs.Variable, shape: tuple[int, ...]) -> None:
    """Make the output of a constant-making node a weight of its own; the node is left unused."""
    tensor = onnx.TensorProto(name=output.name, data_type=onnx.TensorProto.FLOAT, dims=shape)
    output.inputs.clear()
    output.to_constant(gs.ir.tensor.LazyValues(tensor))


def open_batch(model: onnx.ModelProto) -> None:
    """Let each Reshape to a batch of one copy the batch of its input (0 stands for that).

    That the dimension is the batch is for :func:`check_batch` to prove.
    """
    shapes = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[0] not in shapes:
            shape = onnx.numpy_helper.to_array(shapes[node.input[1]]).copy()
            if shape[0] == 1:
                shape[0] = 0
                name = node.input[1]
                shapes[name].CopyFrom(onnx.numpy_helper.from_array(shape, name))


def check_batch(model: onnx.ModelProto) -> None:
    """Raise ``ValueError`` unless the batch goes through every Reshape to every output.

    The batch is given a name, and shape inference must find that name in front of all that is
    reshaped and all that comes out. It then is the batch that a Reshape copies.
    """
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for value in named.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    for value in named.graph.output:
        value.type.tensor_type.ClearField("shape")
    del named.graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(named, strict_mode=True).graph
    shapes = {
        value.name: value.type.tensor_type.shape.dim
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    weights = {tensor.name for tensor in graph.initializer}  # one may be reshaped as well
    reshaped = [node.input[0] for node in graph.node if node.op_type == "Reshape"]
    reshaped = [name for name in reshaped if name not in weights]
    for name in (*reshaped, *(value.name for value in graph.output)):
        dims = shapes.get(name, ())
        if not dims or dims[0].dim_param != BATCH:
            raise ValueError(f"{graph.name}: the first dimension of {name} is not the batch")


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


def shipped(recipe: Recipe) -> Shipped:
    """What the manifest says of it."""
    source = f"onnx package, backend/test/data/light/{recipe.light}.onnx"
    return Shipped(
        recipe.name, recipe.version, "image classification", recipe.family, "caffe2", source,
        "onnx_light", lambda: build(recipe),
    )  # fmt: skip


if __name__ == "__main__":
    main(__doc__, [shipped(recipe) for recipe in RECIPES])
