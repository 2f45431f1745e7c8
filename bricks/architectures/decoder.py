"""The ONNX decoder of an architecture, without weights, as ONNX Runtime's model builder makes it.

Attention is the runtime's GroupQueryAttention, which rotates queries and keys and appends to the
cache; additions are part of the normalisation that follows. Logits are those of the last token
alone, as the builder's option ``prune_lm_head`` makes them. Inputs and outputs have the names of
transformers' exports. Must not know any architecture by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture

_OPSET, _IR_VERSION, _EPSILON = 18, 9, 1e-5
_BATCH, _TOKENS, _PAST, _TOTAL = "batch", "tokens", "past_tokens", "total_tokens"
_IDS, _MASK, _POSITIONS, _LOGITS = "input_ids", "attention_mask", "position_ids", "logits"
MICROSOFT = "com.microsoft"

# Bits of a weight of a matrix, by the name of the quantisation.
QUANTISATIONS: Mapping[str, int] = {"none": 32, "int8": 8, "int4": 4}

# Weights that share a scale, and the type that MatMulNBits may multiply in (4: int8), which are
# the choices of ONNX Runtime's own model builder for processors.
BLOCK, _ACCURACY = 32, 4


def decoder_model(name: str, of: Architecture, quantisation: str) -> onnx.ModelProto:
    """The decoder ``name`` for any number of texts and tokens; see :data:`QUANTISATIONS`."""
    make = GraphBuilder(QUANTISATIONS[quantisation])
    _Layers(make, of).build()
    inputs = [_whole(_IDS, _TOKENS), _whole(_MASK, _TOTAL)]
    inputs += [] if of.rotary else [_whole(_POSITIONS, _TOKENS)]
    logits = helper.make_tensor_value_info(_LOGITS, TensorProto.FLOAT, [_BATCH, 1, of.vocabulary])
    graph = helper.make_graph(
        make.nodes, name, [*inputs, *_cache(of, "past_key_values", _PAST)],
        [logits, *_cache(of, "present", _TOTAL)], make.weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _whole(name: str, length: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, [_BATCH, length])


def _cache(of: Architecture, prefix: str, length: str) -> list[onnx.ValueInfoProto]:
    shape: list[str | int | None] = [_BATCH, of.kv_heads, length, of.head]
    return [
        helper.make_tensor_value_info(f"{prefix}.{layer}.{kind}", TensorProto.FLOAT, shape)
        for layer in range(of.layers)
        for kind in ("key", "value")
    ]


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Values that attention of all layers reads: lengths, and tables of rotations if any."""

    before: str
    total: str
    rotations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layers:
    """Builds the layers of a decoder."""

    make: GraphBuilder
    of: Architecture

    def build(self) -> None:
        of, lengths = self.of, self._lengths()
        state, added = self._embedded(), ""
        for layer in range(of.layers):
            normal, state = self._normalised(state, added, f"{layer}.norm1")
            mixed = self._attention(normal, layer, lengths)
            if of.parallel:
                state = self.make.node("Add", mixed, state)
            else:
                mixed = self._after(mixed, f"{layer}.attention_norm")
                normal, state = self._normalised(state, mixed, f"{layer}.norm2")
            added = self._after(self._feed_forward(normal, layer), f"{layer}.inner_norm")
        normal, _ = self._normalised(state, added, "norm")
        dims = (of.hidden, of.vocabulary)
        logits = self.make.linear(self._last(normal), "lm_head", dims, bias=of.head_bias)
        self.make.nodes_of("Identity", [self._capped(logits)], [_LOGITS])

    def _last(self, value: str) -> str:
        """The last token of each text: the only one whose logits choose the next token."""
        bounds = ([-1], [np.iinfo(np.int64).max], [1])
        return self.make.node("Slice", value, *map(self.make.constant, bounds))

    def _embedded(self) -> str:
        make, of = self.make, self.of
        state = make.node("Gather", make.weight("embedding", of.vocabulary, of.hidden), _IDS)
        if not of.rotary:
            places = make.weight("positions", of.positions, of.hidden)
            state = make.node("Add", state, make.node("Gather", places, _POSITIONS))
        return state

    def _lengths(self) -> _Lengths:
        """Tokens of each text before its last one, and of the longest text."""
        make = self.make
        each = make.node("ReduceSum", _MASK, make.constant([1]), keepdims=0)
        before = make.node("Sub", each, make.constant([1]))
        longest = make.node("Gather", make.node("Shape", _MASK), make.constant(1))
        counts = [make.node("Cast", value, to=TensorProto.INT32) for value in (before, longest)]
        of = self.of
        width = round(of.rotary * of.head) // 2
        rotations = tuple(
            make.weight(name, of.positions, width) for name in ("cos", "sin") if width
        )
        return _Lengths(counts[0], counts[1], rotations)

    def _attention(self, value: str, layer: int, lengths: _Lengths) -> str:
        of, make = self.of, self.make
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        mixed, *_ = make.nodes_of(
            "GroupQueryAttention",
            [*self._heads(value, layer), *past, lengths.before, lengths.total, *lengths.rotations],
            [f"attention_{layer}", *(f"present.{layer}.{kind}" for kind in ("key", "value"))],
            domain=MICROSOFT, num_heads=of.heads, kv_num_heads=of.kv_heads,
            do_rotary=int(bool(lengths.rotations)), local_window_size=of.window_of(layer),
            scale=1 / math.sqrt(of.head), softcap=of.score_cap,
        )  # fmt: skip
        return make.linear(mixed, f"{layer}.out", (of.mixed, of.hidden), bias=of.bias)

    def _heads(self, value: str, layer: int) -> list[str]:
        """Queries, keys and values: one product of all, or three where heads are normalised."""
        of, bias = self.of, self.of.bias or self.of.qkv_bias
        if not of.head_norms:
            dims = (of.hidden, of.mixed + 2 * of.kept)
            return [self.make.linear(value, f"{layer}.qkv", dims, bias=bias), "", ""]
        widths = {"query": of.mixed, "key": of.kept, "value": of.kept}
        query, key, values = (
            self.make.linear(value, f"{layer}.{name}", (of.hidden, width), bias=bias)
            for name, width in widths.items()
        )
        return [
            self._head_norm(query, f"{layer}.query", of.mixed),
            self._head_norm(key, f"{layer}.key", of.kept),
            values,
        ]

    def _head_norm(self, value: str, name: str, width: int) -> str:
        make, head = self.make, self.of.head
        heads = make.node("Reshape", value, make.constant([0, 0, -1, head]))
        normal = self._norm(heads, name, head)
        return make.node("Reshape", normal, make.constant([0, 0, width]))

    def _feed_forward(self, value: str, layer: int) -> str:
        of, make = self.of, self.make
        dims = (of.hidden, of.inner)
        up = make.linear(value, f"{layer}.up", dims, bias=of.bias)
        if of.gated:
            gate = make.linear(value, f"{layer}.gate", dims, bias=of.bias)
            inner = make.node("Mul", self._active(gate), up)
        else:
            inner = self._active(up)
        return make.linear(inner, f"{layer}.down", (of.inner, of.hidden), bias=of.bias)

    def _active(self, value: str) -> str:
        make = self.make
        if self.of.activation == "gelu":
            return make.node("FastGelu", value, domain=MICROSOFT)
        return make.node("Mul", value, make.node("Sigmoid", value))

    def _after(self, value: str, name: str) -> str:
        return self._norm(value, name, self.of.hidden) if self.of.post_norms else value

    def _normalised(self, state: str, added: str, name: str) -> tuple[str, str]:
        """The normalised sum of ``state`` and what is ``added`` to it, and the sum."""
        if not added:
            return self._norm(state, name, self.of.hidden), state
        kind = "Skip" if self.of.layer_norm else "SkipSimplified"
        total = f"{name}.sum"
        normal, *_ = self.make.nodes_of(
            f"{kind}LayerNormalization",
            [state, added, *self._norm_weights(name, self.of.hidden)],
            [f"{name}.out", "", "", total],
            domain=MICROSOFT, epsilon=_EPSILON,
        )  # fmt: skip
        return normal, total

    def _norm(self, value: str, name: str, width: int) -> str:
        kind = "" if self.of.layer_norm else "Simplified"
        weights = self._norm_weights(name, width)
        return self.make.node(
            f"{kind}LayerNormalization", value, *weights, axis=-1, epsilon=_EPSILON
        )

    def _norm_weights(self, name: str, width: int) -> list[str]:
        names = [f"{name}.scale", *([f"{name}.shift"] if self.of.layer_norm else [])]
        return [self.make.weight(each, width) for each in names]

    def _capped(self, logits: str) -> str:
        if not self.of.logit_cap:
            return logits
        cap = self.make.constant(self.of.logit_cap, np.float32)
        return self.make.node(
            "Mul", self.make.node("Tanh", self.make.node("Div", logits, cap)), cap
        )


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
