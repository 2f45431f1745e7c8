"""Bricks of recorded programs as plain data, which need neither ONNX nor this package.

Must not import PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bricks.backends.torch.input_recipes import deciding_values, recipes_of
from bricks.backends.torch.namespaces import QUANTIZED
from bricks.errors import BackendError
from bricks.graph.program import call_of

if TYPE_CHECKING:
    import onnx

# Kernels that PyTorch's compiler made for one host.
_KERNEL = "kernel"


def piece_of(proto: onnx.ModelProto) -> dict[str, Any]:
    """Return a brick as JSON: its calls, its inputs and outputs by name, how tensors are made.

    ``deciding`` are the inputs whose values decide how long it takes, with their sketches. Raises
    :class:`BackendError` for compiled kernels and quantised products.
    """
    sketches = deciding_values(proto).items()
    return {
        "calls": [_call(node) for node in proto.graph.node],
        "inputs": [info.name for info in proto.graph.input],
        "outputs": [info.name for info in proto.graph.output],
        "recipes": recipes_of(proto).to_json(),
        "deciding": {name: sketch and sketch.to_json() for name, sketch in sketches},
    }


def _call(node: onnx.NodeProto) -> list[Any]:
    call = call_of(node)
    if call.namespace == _KERNEL:
        raise BackendError("compiled kernels are of one host: choose --runtime torch")
    if call.namespace == QUANTIZED:
        raise BackendError(
            "a suite's own program packs no quantised weights: measure it with --runtime torch"
        )
    return [
        call.namespace, call.operator, *call.arguments, list(node.input), list(node.output),
        list(call.aliases), call.on_host,
    ]  # fmt: skip
