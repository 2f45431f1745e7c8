"""PyTorch's counterparts of the operators of ONNX: one small function per operator.

Each makes the calls that a user of PyTorch would make. An operator without a counterpart, or with
an attribute that PyTorch computes otherwise, raises an error that names it. Written for the
standard operators up to opset 22. Must not know graphs, weights or time.
"""

from bricks.backends.torch.counterparts import arrays, elements, layers
from bricks.backends.torch.counterparts.node import OPERATORS, TorchNode, Value

__all__ = ["OPERATORS", "TorchNode", "Value", "arrays", "elements", "layers"]
