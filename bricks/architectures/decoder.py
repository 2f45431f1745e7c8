"""The ONNX decoder of an architecture, without weights, as ONNX Runtime's model builder makes it.

Attention is the runtime's GroupQueryAttention, which rotates queries and keys and appends to the
cache; additions are part of the normalisation that follows. Logits are those of the last token
alone, as the builder's option ``prune_lm_head`` makes them. Inputs and outputs have the names of
transformers' exports. Must not know any architecture by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from bricks.architectures.weights import MICROSOFT, QUANTISATIONS, GraphBuilder

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture

_OPSET, _IR_VERSION, _EPSILON = 18, 9, 1e-5
_BATCH, _TOKENS, _PAST, _TOTAL = "batch", "tokens", "past_tokens", "total_tokens"
_IDS, _MASK, _POSITIONS, _LOGITS = "input_ids", "attention_mask", "position_ids", "logits"


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
        """Add all nodes, from tokens to logits and the cache."""
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
        return _Lengths(counts[0], counts[1], self._rotations())

    def _rotations(self) -> tuple[str, ...]:
        of = self.of
        width = round(of.rotary * of.head) // 2
        return tuple(
            self.make.weight(name, of.positions, width) for name in ("cos", "sin") if width
        )

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
