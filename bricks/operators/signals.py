"""Transforms and windows of signals, whose sizes are inputs."""

from __future__ import annotations

from bricks.operators.operator import Operator, Steering, names
from bricks.operators.restrictions import shape_at

OPERATORS = (
    Operator(onnx=names("DFT"), restrict=shape_at(1, 2)),
    Operator(onnx=names("STFT"), restrict=shape_at(1, 3)),
    Operator(onnx=names("BlackmanWindow HammingWindow HannWindow"), restrict=shape_at(0)),
    # Edges of the scale.
    Operator(onnx=names("MelWeightMatrix"), restrict=shape_at(0, 1, 2), steering=Steering((3, 4))),
)
