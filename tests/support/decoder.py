"""A decoder of a large language model by its architecture, without its weights.

Layers are those of LLaMA (Touvron et al. 2023, arXiv:2302.13971): RMS normalisation, rotary
positions, a gated feed-forward part; with a cache of keys and values, as decoders are served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from factories import Dims, constant, model, node, value
from onnx import TensorProto

WEIGHTS = "decoder.weights"


@dataclass(frozen=True)
class Architecture:
    """Sizes; by default those of 7 billion parameters."""

    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    inner: int = 11008
    vocabulary: int = 32000
    positions: int = 4096


def shapes(architecture: Architecture, tokens: int, past: int) -> dict[str, Sequence[int]]:
    """Shapes of the inputs for so many new ``tokens`` after ``past`` ones."""
    head = architecture.hidden // architecture.heads
    found: dict[str, Sequence[int]] = {
        "input_ids": (1, tokens),
        "position_ids": (1, tokens),
        "attention_mask": (1, 1, tokens, tokens + past),
    }
    for i in range(architecture.layers):
        for kind in ("key", "value"):
            found[f"past.{i}.{kind}"] = (1, architecture.heads, past, head)
    return found


def decoder(of: Architecture) -> onnx.ModelProto:
    """The model; its weights are in a file that does not exist."""
    return _Builder(of).build()


class _Builder:
    def __init__(self, of: Architecture) -> None:
        self._of = of
        self._head = of.hidden // of.heads
        self._nodes: list[onnx.NodeProto] = []
        self._offset = 0
        self._initializers = [
            constant("two", 2.0, "FLOAT"), constant("one", 1.0, "FLOAT"),
            constant("epsilon", 1e-5, "FLOAT"), constant("scale", self._head**-0.5, "FLOAT"),
            constant("by head", [0, 0, of.heads, self._head]),
            constant("together", [0, 0, of.hidden]), constant("begin", [0]),
            constant("half", [self._head // 2]), constant("end", [2**62]),
            constant("axis 1", [1]), constant("axis 3", [3]),
        ]  # fmt: skip

    def build(self) -> onnx.ModelProto:
        of = self._of
        x = self._add("Gather", [self._weight("embedding", of.vocabulary, of.hidden), "input_ids"])
        self._rotation = [
            self._add("Unsqueeze", [self._add("Gather", [table, "position_ids"]), "axis 1"])
            for table in (self._weight(t, of.positions, self._head) for t in ("cosine", "sine"))
        ]
        for i in range(of.layers):
            x = self._layer(x, i)
        scores = self._weight("scores", of.hidden, of.vocabulary)
        self._add("MatMul", [self._norm(x, "last"), scores], "logits")
        past: Dims = ["batch", of.heads, "past", self._head]
        total: Dims = ["batch", of.heads, "total", self._head]
        kinds = [f"{i}.{kind}" for i in range(of.layers) for kind in ("key", "value")]
        return model(
            self._nodes,
            [
                value("input_ids", ["batch", "tokens"], "INT64"),
                value("position_ids", ["batch", "tokens"], "INT64"),
                value("attention_mask", ["batch", 1, "tokens", "total"]),
                *(value(f"past.{kind}", past) for kind in kinds),
            ],
            [
                value("logits", ["batch", "tokens", of.vocabulary]),
                *(value(f"present.{kind}", total) for kind in kinds),
            ],
            self._initializers,
        )

    def _layer(self, x: str, i: int) -> str:
        of, name = self._of, f"layer{i}"
        y = self._norm(x, f"{name}.attention")
        query, key, held = (
            self._add("Transpose", [
                self._add("Reshape", [
                    self._product(y, f"{name}.{part}", of.hidden, of.hidden), "by head"
                ])
            ], perm=[0, 2, 1, 3])
            for part in ("query", "key", "value")
        )  # fmt: skip
        query, key = self._rotated(query), self._rotated(key)
        key = self._add("Concat", [f"past.{i}.key", key], f"present.{i}.key", axis=2)
        held = self._add("Concat", [f"past.{i}.value", held], f"present.{i}.value", axis=2)
        turned = self._add("Transpose", [key], perm=[0, 1, 3, 2])
        scores = self._add("Mul", [self._add("MatMul", [query, turned]), "scale"])
        scores = self._add("Softmax", [self._add("Add", [scores, "attention_mask"])], axis=-1)
        mixed = self._add("Transpose", [self._add("MatMul", [scores, held])], perm=[0, 2, 1, 3])
        mixed = self._add("Reshape", [mixed, "together"])
        x = self._add("Add", [x, self._product(mixed, f"{name}.out", of.hidden, of.hidden)])
        y = self._norm(x, f"{name}.forward")
        gate = self._product(y, f"{name}.gate", of.hidden, of.inner)
        gate = self._add("Mul", [gate, self._add("Sigmoid", [gate])])
        up = self._add("Mul", [gate, self._product(y, f"{name}.up", of.hidden, of.inner)])
        return self._add("Add", [x, self._product(up, f"{name}.down", of.inner, of.hidden)])

    def _norm(self, x: str, name: str) -> str:
        mean = self._add("ReduceMean", [self._add("Pow", [x, "two"])], axes=[-1])
        root = self._add("Sqrt", [self._add("Add", [mean, "epsilon"])])
        scaled = self._add("Mul", [x, self._add("Div", ["one", root])])
        return self._add("Mul", [self._weight(f"{name}.norm", self._of.hidden), scaled])

    def _rotated(self, x: str) -> str:
        cosine, sine = self._rotation
        upper = self._add("Slice", [x, "half", "end", "axis 3"])
        lower = self._add("Slice", [x, "begin", "half", "axis 3"])
        turned = self._add("Concat", [self._add("Neg", [upper]), lower], axis=-1)
        parts = [self._add("Mul", [x, cosine]), self._add("Mul", [turned, sine])]
        return self._add("Add", parts)

    def _product(self, x: str, name: str, rows: int, columns: int) -> str:
        return self._add("MatMul", [x, self._weight(name, rows, columns)])

    def _add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: object) -> str:
        output = output or f"{op} {len(self._nodes)}"
        self._nodes.append(node(op, inputs, [output], **attributes))
        return output

    def _weight(self, name: str, *dims: int) -> str:
        tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        size_bytes = 4 * math.prod(dims)
        entries = {"location": WEIGHTS, "offset": self._offset, "length": size_bytes}
        for key, entry in entries.items():
            tensor.external_data.add(key=key, value=str(entry))
        self._offset += size_bytes
        self._initializers.append(tensor)
        return name


def parameters(proto: onnx.ModelProto) -> int:
    """Elements of all weights."""
    return sum(int(np.prod(t.dims)) for t in proto.graph.initializer if t.data_location)
