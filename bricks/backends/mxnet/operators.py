"""All translations of ONNX operators to MXNet: one small function per operator.

An operator becomes the corresponding MXNet layer if there is one, so that MXNet's fusions recognise
it. Otherwise the function raises an error, and the brick becomes a named gap in the estimate.
Written for MXNet 1.9.1 and the standard operators up to opset 19. The modules that it imports must
not know graphs, weights or time.
"""

from bricks.backends.mxnet import arrays, elements, layers
from bricks.backends.mxnet.node import OPERATORS

__all__ = ["OPERATORS", "arrays", "elements", "layers"]
