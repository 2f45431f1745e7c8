"""Quantising models: an optional interface of offers, and the choice of a method.

Here because tools that quantise belong to runtimes. Must not know any runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.backends.base import Capability
from bricks.errors import ModelError

if TYPE_CHECKING:
    import onnx

_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))
_PRODUCTS = frozenset(("MatMul", "Gemm", "Attention", "LSTM"))

# Kernels of ONNX Runtime that compute in integers, besides QLinear….
_INTEGER = frozenset(
    (
        *("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
        *("QGemm", "QAttention", "DynamicQuantizeLSTM", "QEmbedLayerNormalization"),
    )
)


class QuantisationMethod(str, Enum):  # noqa: UP042  # workers run on 3.10, without StrEnum
    """The numbers that a quantised model reads: ``static`` scales, or one computed in each run.

    A static quantisation calibrates the scales of activations beforehand.
    """

    STATIC = "static"
    DYNAMIC = "dynamic"

    __str__ = str.__str__


class Quantiser(Capability):
    """An optional interface of an offer: the runtime's own tool that quantises models to int8."""

    lacking: ClassVar[str] = "{name} has no tool that quantises models"

    @abstractmethod
    def quantise(
        self,
        source: Path,
        target: Path,
        method: QuantisationMethod,
        samples: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write the model in ``source`` to ``target``, quantised; its folder may get other files.

        ``samples`` are inputs by name, with which a static quantisation is calibrated. Imports the
        runtime, so call it in a worker process. Raises :class:`~bricks.errors.BackendError` for a
        model that the tool cannot quantise.
        """


def quantisation_method(
    name: str, nodes: Iterable[onnx.NodeProto], *, own: bool
) -> QuantisationMethod:
    """Return the method for a model called ``name``, by its ``nodes``.

    Static for most convolutions, as the tools recommend; dynamic for others, if the runtime of the
    tool executes them (``own``): other runtimes know static ones alone. Raises
    :class:`ModelError` for a model that is quantised already, or has nothing to quantise.
    """
    operators = [node.op_type for node in nodes]
    if any(map(is_quantised, operators)):
        raise ModelError(f"{name} is quantised already: leave out --quantize")
    convolutions = sum(operator in _CONVOLUTIONS for operator in operators)
    products = sum(operator in _PRODUCTS for operator in operators)
    if not convolutions + products:
        raise ModelError(
            f"{name} has no convolution and no matrix product, which int8 would speed up: leave out"
            " --quantize"
        )
    dynamic = own and products > convolutions
    return QuantisationMethod.DYNAMIC if dynamic else QuantisationMethod.STATIC


def quantised(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Return whether any of ``nodes`` is an operator of quantised models."""
    return any(is_quantised(node.op_type) for node in nodes)


def is_quantised(operator: str) -> bool:
    """Return whether ``operator``, without its domain, is one of quantised models."""
    ends = ("QuantizeLinear", "DequantizeLinear", "NBits")
    return computes_in_integers(operator) or operator.endswith(ends)


def computes_in_integers(operator: str) -> bool:
    """Return whether ``operator``, without its domain, is a kernel that multiplies integers."""
    return operator.startswith("QLinear") or operator in _INTEGER
