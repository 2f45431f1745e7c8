"""Export convolutional networks of MXNet's Gluon model zoo, with random weights.

Residual, depthwise, dense and plain networks, as the DLBricks paper measured them in MXNet.
MXNet 1.9.1 needs an environment of its own, see ``requirements-mxnet.txt``. Run from anywhere:

    python models/recipes/mxnet_gluon.py [--out FOLDER] [NAME…]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import mxnet as mx
import numpy as np
import onnx
from mxnet.gluon.model_zoo import vision
from zoo_files import (
    REPOSITORY_MODELS,
    Origin,
    leave_out_notes,
    leave_out_values,
    write,
    write_manifest,
)

SHAPE = (1, 3, 224, 224)
PREFIX = "gluon_"

# The first version in which an initializer need not be an input as well.
IR_VERSION = 4


@dataclass(frozen=True, slots=True)
class Recipe:
    """A network of Gluon's zoo, by the name it has there."""

    gluon: str
    family: str

    @property
    def name(self) -> str:
        """Its name in this zoo."""
        return PREFIX + self.gluon.replace(".", "")


RECIPES = (
    Recipe("densenet169", "DenseNet"),
    Recipe("mobilenet0.25", "MobileNet"),
    Recipe("mobilenet1.0", "MobileNet"),
    Recipe("mobilenetv2_0.5", "MobileNet"),
    Recipe("resnet18_v1", "ResNet"),
    Recipe("resnet34_v2", "ResNet"),
    Recipe("squeezenet1.1", "SqueezeNet"),
    Recipe("vgg11_bn", "VGG"),
)


def export(recipe: Recipe) -> onnx.ModelProto:
    """The network of ``recipe`` without its weights."""
    mx.random.seed(0)
    network = vision.get_model(recipe.gluon)
    network.initialize()
    network.hybridize()
    network(mx.nd.zeros(SHAPE))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        network.export(str(path), 0)
        mx.onnx.export_model(
            f"{path}-symbol.json", f"{path}-0000.params", [SHAPE], [np.float32], f"{path}.onnx"
        )
        model = onnx.load(f"{path}.onnx")
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")  # the batch may be changed
    model.ir_version = max(model.ir_version, IR_VERSION)
    leave_out_notes(model)
    leave_out_values(model, f"{recipe.name}.weights")
    model.producer_name, model.producer_version = "bricks zoo", ""
    model.graph.name = recipe.name
    return model


def main() -> None:
    """Export the networks and say what was written."""
    parser = argparse.ArgumentParser(description="Export the zoo's networks from MXNet.")
    parser.add_argument("--out", type=Path, default=REPOSITORY_MODELS)
    parser.add_argument("names", nargs="*", help="only these")
    arguments = parser.parse_args()
    for recipe in RECIPES:
        if arguments.names and recipe.name not in arguments.names:
            continue
        model = export(recipe)
        source = f"MXNet {mx.__version__}, Gluon model zoo, {recipe.gluon}"
        origin = Origin(recipe.name, 1, "image classification", recipe.family, "mxnet", source)
        item = write(arguments.out, model, origin)
        write_manifest(arguments.out, [item])
        print(f"{item['name']:24} {item['parameters']:>12,} parameters  {item['sha256'][:12]}")


if __name__ == "__main__":
    main()
