"""What PyTorch has for the operators of ONNX: one small function per operator.

Each calls what a user of PyTorch would call. An operator without a counterpart, or with an
attribute that PyTorch computes otherwise, raises an error, which is one named gap. Written for the
standard operators up to opset 22. Must not know graphs, weights or time.
"""

from bricks.backends.torch.counterparts import arrays, elements, layers, recurrent, reductions
from bricks.backends.torch.counterparts.node import OPERATORS, Node, Value

__all__ = [
    "OPERATORS", "Node", "Value", "arrays", "elements", "layers", "recurrent", "reductions",
]  # fmt: skip
