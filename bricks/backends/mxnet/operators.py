"""What each ONNX operator is in MXNet: one small function an operator.

Where MXNet has the layer, it is that layer, so that MXNet's own fusions find it; where it has not,
the function says so, and the brick becomes a named gap. Written for MXNet 1.9.1 and the standard
operators up to opset 19. Neither this nor what it gathers knows of graphs, weights or time.
"""

from bricks.backends.mxnet import arrays, elements, layers
from bricks.backends.mxnet.node import OPERATORS, Node, Symbol

__all__ = ["OPERATORS", "Node", "Symbol", "arrays", "elements", "layers"]
