"""Build decoders with a cache of keys and values, in the form that transformers' exports have.

Text is generated token by token: each step takes the tokens that are new, and the keys and values
of all before them. Inputs and outputs have the names that exporters of transformers give them
(``input_ids``, ``past_key_values.0.key``, ``present.0.key``), and their open dimensions are
symbols. The dimensions of GPT-2 and of Llama 7B are the published ones; the two small Llamas are
of no published model. Weights of 4 and 8 bits are those of ONNX Runtime's MatMulNBits, in blocks
of 32, whose products may be computed in 8 bits.

Knows architectures and ONNX; nothing of bricks.

    bricks zoo build decoder_llama
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from zoo_files import Shipped, main, parameters

OPSET = 18
IR_VERSION = 9
BLOCK = 32  # weights that share a scale, where they have few bits
ACCURACY = 4  # MatMulNBits may compute in 8 bits, as exporters for processors let it
MASKED = -1e9

BATCH, TOKENS, PAST, TOTAL = "batch", "tokens", "past_tokens", "total_tokens"


@dataclass(frozen=True, slots=True)
class Architecture:
    """The dimensions of a decoder; ``kv_heads`` fewer than ``heads`` are shared by groups of them.

    ``bits`` of a weight of a linear layer: 32, or 8 or 4.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    positions: int
    bits: int = 32

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.hidden // self.heads


class Builder:
    """Nodes and weights of a graph; weights are declared, their values are left out."""

    def __init__(self, name: str, bits: int) -> None:
        self.name, self.bits = name, bits
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._offset = 0
        self._constants: dict[bytes, str] = {}

    def __call__(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; the name of its only output, or the beginning of the names of several."""
        name = f"{operator}_{len(self.nodes)}"
        made = [name] if outputs == 1 else [f"{name}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, made, name=name, **attributes))
        return name

    def constant(self, values: object, dtype: type = np.int64) -> str:
        """A small constant, which steers shapes or scales."""
        array: np.ndarray = np.asarray(values, dtype=dtype)
        key = array.tobytes() + str((array.shape, array.dtype)).encode()
        if key not in self._constants:
            name = self._constants[key] = f"constant_{len(self._constants)}"
            self.weights.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def weight(self, name: str, *dims: int, dtype: int = TensorProto.FLOAT) -> str:
        """A weight without values, in a file beside the model."""
        length = math.prod(dims) * helper.tensor_dtype_to_np_dtype(dtype).itemsize
        place = {
            "location": f"{self.name}.weights", "offset": str(self._offset), "length": str(length),
        }  # fmt: skip
        self._offset += length
        self.weights.append(
            TensorProto(
                name=name,
                data_type=dtype,
                dims=dims,
                data_location=TensorProto.EXTERNAL,
                external_data=[
                    onnx.StringStringEntryProto(key=k, value=v) for k, v in place.items()
                ],
            )
        )
        return name

    def linear(self, value: str, name: str, inner: int, outer: int) -> str:
        """``value`` times a matrix of weights."""
        if self.bits == 32:
            return self("MatMul", value, self.weight(name, inner, outer))
        blocks = inner // BLOCK
        packed = self.weight(
            f"{name}.packed", outer, blocks, BLOCK * self.bits // 8, dtype=TensorProto.UINT8
        )
        scales = self.weight(f"{name}.scales", outer * blocks)
        return self(
            "MatMulNBits", value, packed, scales, K=inner, N=outer, bits=self.bits,
            block_size=BLOCK, accuracy_level=ACCURACY, domain="com.microsoft",
        )  # fmt: skip

    def affine(self, value: str, name: str, inner: int, outer: int) -> str:
        """The same plus a bias."""
        return self(
            "Add", self.linear(value, name, inner, outer), self.weight(f"{name}.bias", outer)
        )


def causal_bias(make: Builder) -> str:
    """What is added to scores ``(batch, 1, tokens, total)``: a token sees none that come later."""
    total = make("Shape", "attention_mask", start=1, end=2)
    last = make("Squeeze", total)
    places = make("Range", make.constant(0), last, make.constant(1))
    own = make("Unsqueeze", "position_ids", make.constant([1, 3]))
    earlier = make("LessOrEqual", places, own)
    there = make(
        "Cast", make("Unsqueeze", "attention_mask", make.constant([1, 2])), to=TensorProto.BOOL
    )
    seen = make("And", earlier, there)
    return make("Where", seen, make.constant(0, np.float32), make.constant(MASKED, np.float32))


def split_heads(make: Builder, value: str, heads: int, width: int) -> str:
    """``(batch, tokens, heads * width)`` as ``(batch, heads, tokens, width)``."""
    shaped = make("Reshape", value, make.constant([0, 0, heads, width]))
    return make("Transpose", shaped, perm=[0, 2, 1, 3])


def attention(make: Builder, of: Architecture, layer: int, qkv: list[str], bias: str) -> str:
    """Attention of the new tokens to all; keys and values are appended to those of the cache."""
    query, key, value = qkv
    kept = []
    for kind, new in (("key", key), ("value", value)):
        joined = f"present.{layer}.{kind}"
        make.nodes.append(
            helper.make_node(
                "Concat",
                [f"past_key_values.{layer}.{kind}", new],
                [joined],
                name=f"cache_{layer}_{kind}",
                axis=2,
            )
        )
        kept.append(repeated(make, of, joined))
    keys, values = kept
    scores = make("MatMul", query, make("Transpose", keys, perm=[0, 1, 3, 2]))
    scaled = make("Mul", scores, make.constant(1 / math.sqrt(of.head), np.float32))
    shares = make("Softmax", make("Add", scaled, bias), axis=-1)
    mixed = make("Transpose", make("MatMul", shares, values), perm=[0, 2, 1, 3])
    return make("Reshape", mixed, make.constant([0, 0, of.hidden]))


def repeated(make: Builder, of: Architecture, cached: str) -> str:
    """The cache with each head as often as there are heads of queries that share it."""
    each = of.heads // of.kv_heads
    if each == 1:
        return cached
    single = make("Unsqueeze", cached, make.constant([2]))
    many = make("Expand", single, make.constant([1, 1, each, 1, 1]))
    return make("Reshape", many, make.constant([0, of.heads, -1, of.head]))


def rotated(make: Builder, value: str, cos: str, sin: str) -> str:
    """Rotary positions, in the form with two halves."""
    halves = make("Split", value, outputs=2, num_outputs=2, axis=-1)
    turned = make("Concat", make("Neg", f"{halves}_1"), f"{halves}_0", axis=-1)
    return make("Add", make("Mul", value, cos), make("Mul", turned, sin))


def gpt2(make: Builder, of: Architecture) -> str:
    """GPT-2 (Radford et al., 2019): learned positions, normalisation before each part, GELU."""
    words = make("Gather", make.weight("wte", of.vocabulary, of.hidden), "input_ids")
    places = make("Gather", make.weight("wpe", of.positions, of.hidden), "position_ids")
    state, bias = make("Add", words, places), causal_bias(make)
    width = of.hidden

    def normalised(value: str, name: str) -> str:
        scale, shift = make.weight(f"{name}.scale", width), make.weight(f"{name}.shift", width)
        return make("LayerNormalization", value, scale, shift, axis=-1, epsilon=1e-5)

    for layer in range(of.layers):
        joined = make.affine(normalised(state, f"{layer}.ln1"), f"{layer}.qkv", width, 3 * width)
        parts = make("Split", joined, outputs=3, num_outputs=3, axis=-1)
        qkv = [split_heads(make, f"{parts}_{n}", of.heads, of.head) for n in range(3)]
        mixed = attention(make, of, layer, qkv, bias)
        state = make("Add", state, make.affine(mixed, f"{layer}.out", width, width))
        inner = make.affine(normalised(state, f"{layer}.ln2"), f"{layer}.up", width, of.inner)
        active = gelu(make, inner)
        state = make("Add", state, make.affine(active, f"{layer}.down", of.inner, width))
    return make.linear(normalised(state, "final"), "lm_head", width, of.vocabulary)


def gelu(make: Builder, value: str) -> str:
    """GELU by the hyperbolic tangent, as GPT-2 has it."""

    def number(of: float) -> str:
        return make.constant(of, np.float32)

    cube = make("Pow", value, number(3.0))
    curve = make("Add", value, make("Mul", cube, number(0.044715)))
    bent = make("Tanh", make("Mul", curve, number(math.sqrt(2 / math.pi))))
    return make("Mul", make("Mul", value, number(0.5)), make("Add", bent, number(1.0)))


def llama(make: Builder, of: Architecture) -> str:
    """Llama (Touvron et al., 2023): rotary positions, RMS normalisation, gated units."""
    state = make("Gather", make.weight("embedding", of.vocabulary, of.hidden), "input_ids")
    bias = causal_bias(make)
    cos, sin = (
        make("Unsqueeze", make("Gather", make.weight(name, of.positions, of.head), "position_ids"),
             make.constant([1]))
        for name in ("cos", "sin")
    )  # fmt: skip
    width, kept = of.hidden, of.kv_heads * of.head

    def normalised(value: str, name: str) -> str:
        mean = make("ReduceMean", make("Mul", value, value), make.constant([-1]), keepdims=1)
        root = make("Sqrt", make("Add", mean, make.constant(1e-5, np.float32)))
        return make("Mul", make("Div", value, root), make.weight(name, width))

    for layer in range(of.layers):
        before = normalised(state, f"{layer}.norm1")
        query = split_heads(
            make, make.linear(before, f"{layer}.q", width, width), of.heads, of.head
        )
        key, value = (
            split_heads(
                make, make.linear(before, f"{layer}.{n}", width, kept), of.kv_heads, of.head
            )
            for n in "kv"
        )
        qkv = [rotated(make, query, cos, sin), rotated(make, key, cos, sin), value]
        mixed = attention(make, of, layer, qkv, bias)
        state = make("Add", state, make.linear(mixed, f"{layer}.o", width, width))
        before = normalised(state, f"{layer}.norm2")
        gate = make.linear(before, f"{layer}.gate", width, of.inner)
        up = make.linear(before, f"{layer}.up", width, of.inner)
        gated = make("Mul", make("Mul", gate, make("Sigmoid", gate)), up)
        state = make("Add", state, make.linear(gated, f"{layer}.down", of.inner, width))
    return make.linear(normalised(state, "norm"), "lm_head", width, of.vocabulary)


Body = Callable[[Builder, Architecture], str]


def build(name: str, of: Architecture, body: Body) -> onnx.ModelProto:
    """The decoder: its inputs, the cache among them, to logits of all new tokens and the cache."""
    make = Builder(name, of.bits)
    logits = body(make, of)
    make.nodes.append(helper.make_node("Identity", [logits], ["logits"], name="logits"))

    def cache(prefix: str, length: str) -> list[onnx.ValueInfoProto]:
        shape: list[str | int | None] = [BATCH, of.kv_heads, length, of.head]
        return [
            helper.make_tensor_value_info(f"{prefix}.{layer}.{kind}", TensorProto.FLOAT, shape)
            for layer in range(of.layers)
            for kind in ("key", "value")
        ]

    def whole(name: str, length: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, length])

    inputs = [
        whole("input_ids", TOKENS), whole("attention_mask", TOTAL), whole("position_ids", TOKENS),
        *cache("past_key_values", PAST),
    ]  # fmt: skip
    shape: list[str | int | None] = [BATCH, TOKENS, of.vocabulary]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape),
        *cache("present", TOTAL),
    ]
    graph = helper.make_graph(make.nodes, name, inputs, outputs, make.weights)
    domains = [helper.make_opsetid("", OPSET)]
    if of.bits != 32:
        domains.append(helper.make_opsetid("com.microsoft", 1))
    model = helper.make_model(graph, opset_imports=domains, producer_name="bricks zoo")
    model.ir_version = IR_VERSION
    return model


def whole_parameters(name: str, of: Architecture, body: Body) -> int:
    """The parameters of a decoder whatever the bits of each."""
    return parameters(build(name, replace(of, bits=32), body))


SEVEN_BILLION = {
    "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "inner": 11008,
    "vocabulary": 32000, "positions": 4096,
}  # fmt: skip
DECODERS = {
    "gpt2": ("GPT-2", gpt2, Architecture(768, 12, 12, 12, 3072, 50257, 1024)),
    "llama": ("Llama", llama, Architecture(512, 8, 8, 8, 1408, 32000, 2048)),
    "grouped": ("Llama", llama, Architecture(768, 8, 12, 3, 2048, 16000, 4096)),
    "llama_7b": ("Llama", llama, Architecture(**SEVEN_BILLION)),
    "llama_7b_int8": ("Llama", llama, Architecture(**SEVEN_BILLION, bits=8)),
    "llama_7b_int4": ("Llama", llama, Architecture(**SEVEN_BILLION, bits=4)),
}
MODELS = [
    Shipped(
        name=f"decoder_{name}", version=1, task="text generation", family=family, framework="onnx",
        source="built from its dimensions", recipe="onnx_decoders",
        build=partial(build, f"decoder_{name}", of, body), kind="decoder",
        parameters=partial(whole_parameters, name, of, body),
    )
    for name, (family, body, of) in DECODERS.items()
]  # fmt: skip

if __name__ == "__main__":
    main(__doc__ or "", MODELS)
