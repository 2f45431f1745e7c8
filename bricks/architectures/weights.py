"""Nodes and weights of a decoder's graph; weights have places in a file that need not exist.

Must not know any architecture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"

# Bits of a weight of a matrix, by the name of the quantisation.
QUANTISATIONS: Mapping[str, int] = {"none": 32, "int8": 8, "int4": 4}

# Weights that share a scale, and the type that MatMulNBits may multiply in (4: int8), which are
# the choices of ONNX Runtime's own model builder for processors.
BLOCK, _ACCURACY = 32, 4


class GraphBuilder:
    """Builds a graph node by node; ``bits`` are those of the weights of matrices."""

    def __init__(self, bits: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._bits = bits
        self._offset = 0

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its only output."""
        (output,) = self.nodes_of(operator, inputs, 1, domain=domain, **attributes)
        return output

    def nodes_of(
        self, operator: str, inputs: Sequence[str], outputs: int | Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs, by number or by name; return their names."""
        name = f"{operator}_{len(self.nodes)}"
        made = [f"{name}.{n}" for n in range(outputs)] if isinstance(outputs, int) else [*outputs]
        self.nodes.append(helper.make_node(operator, [*inputs], made, name=name, **attributes))
        return made

    def constant(self, values: object, dtype: type = np.int64) -> str:
        """Add a small constant, which steers shapes or scales."""
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def weight(self, name: str, *dims: int, dtype: int = TensorProto.FLOAT) -> str:
        """Declare a weight with the given dimensions; its values are left out."""
        length = math.prod(dims) * helper.tensor_dtype_to_np_dtype(dtype).itemsize
        place = {"location": "weights", "offset": str(self._offset), "length": str(length)}
        self._offset += length
        tensor = TensorProto(
            name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.extend(
            onnx.StringStringEntryProto(key=key, value=value) for key, value in place.items()
        )
        self.weights.append(tensor)
        return name

    def linear(self, value: str, name: str, dims: tuple[int, int], *, bias: bool = False) -> str:
        """Multiply ``value`` by a matrix of weights; with ``bias``, add one."""
        product = self._product(value, name, *dims)
        return self.node("Add", product, self.weight(f"{name}.bias", dims[1])) if bias else product

    def _product(self, value: str, name: str, inner: int, outer: int) -> str:
        if self._bits == 32:
            return self.node("MatMul", value, self.weight(name, inner, outer))
        blocks, block_bytes = -(-inner // BLOCK), BLOCK * self._bits // 8
        packed = self.weight(f"{name}.packed", outer, blocks, block_bytes, dtype=TensorProto.UINT8)
        return self.node(
            "MatMulNBits", value, packed, self.weight(f"{name}.scales", outer * blocks),
            domain=MICROSOFT, K=inner, N=outer, bits=self._bits, block_size=BLOCK,
            accuracy_level=_ACCURACY,
        )  # fmt: skip
