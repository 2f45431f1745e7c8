"""Models with open dimensions, for servers that ask for their sizes."""

from __future__ import annotations

import onnx
from factories import model, node, value


def open_batch(*others: str) -> onnx.ModelProto:
    """A model whose batch is open, and further axes called ``others``."""
    dims = ["N", *others, 8]
    return model([node("Relu", ["x"], ["y"])], [value("x", dims)], [value("y", dims)])
