"""Operators of the reference that the onnx package's evaluator lacks, or computes otherwise.

Each follows the text of the ONNX specification. Those of the evaluator (version 1.23) that are
replaced: BatchNormalization before version 14, which it computes as in training; LRN, which
normalises as many channels as there are samples; GatherElements, which fails for indices of one
row; softmax before version 13, which it computes as that version; recurrent layers with a ReLU,
which it lacks. Importing this module imports the evaluator. Must not know which runtime is compared
with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_rnn import RNN_14

from bricks.measure.worker.double_model import DOMAIN


class RNN(RNN_14):
    """Recurrent layers with a ReLU too."""

    op_domain = ""

    def choose_act(self, name: str, alpha: Any, beta: Any) -> Any:
        """The activation called ``name``."""
        if name == "Relu":
            return lambda x: np.maximum(x, 0)
        return super().choose_act(name, alpha, beta)  # type: ignore[no-untyped-call]  # of onnx


class LogSoftmax(OpRun):
    """LogSoftmax before version 13: it normalises all axes from ``axis`` on together."""

    op_domain = DOMAIN

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        axis = axis % x.ndim
        flat = x.reshape(*x.shape[:axis], -1)
        flat = flat - flat.max(axis=-1, keepdims=True)
        flat = flat - np.log(np.exp(flat).sum(axis=-1, keepdims=True))
        return (flat.reshape(x.shape),)


class Softmax(LogSoftmax):
    """Softmax before version 13."""

    op_domain = DOMAIN

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        (logarithms,) = super()._run(x, axis)
        return (np.exp(logarithms),)


class BatchNormalization(OpRun):
    """BatchNormalization as in inference."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        var: np.ndarray,
        epsilon: float = 1e-5,
        **of_training: Any,
    ) -> tuple[np.ndarray]:
        shape = (-1, *(1,) * (x.ndim - 2))
        factor = (scale / np.sqrt(var + epsilon)).reshape(shape)
        return ((x - mean.reshape(shape)) * factor + bias.reshape(shape),)


class LRN(OpRun):
    """LRN over the channels of a sample."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, alpha: float, beta: float, bias: float, size: int
    ) -> tuple[np.ndarray]:
        before, after = (size - 1) // 2, size // 2
        padded = np.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        squares = sum(padded[:, k : k + x.shape[1]] ** 2 for k in range(size))
        return (x / (bias + alpha / size * squares) ** beta,)


class GatherElements(OpRun):
    """GatherElements of any number of rows."""

    op_domain = ""

    def _run(self, x: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
        axis = axis % x.ndim
        rows = tuple(
            slice(None) if k == axis else slice(size) for k, size in enumerate(indices.shape)
        )
        return (np.take_along_axis(x[rows], indices, axis),)


# The evaluator prefers these to its own of the same domain and name.
FURTHER_OPERATORS = (RNN, LogSoftmax, Softmax, BatchNormalization, LRN, GatherElements)
