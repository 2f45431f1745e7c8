"""Decoders: language models with inputs for new tokens and a cache of keys and values.

Inputs and outputs are named as in transformers' exports: ``input_ids``, ``attention_mask``,
``position_ids``, ``past_key_values.0.key`` and ``present.0.key``. Must not know how steps are
measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks.errors import ModelError, ShapeError
from bricks.graph.shapes import CACHE
from bricks.graph.types import ELEMENT_BITS
from bricks.graph.view import parse_model
from bricks.graph.wire import skim

IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
_PRESENT = "present"
_EXPORT = "export it as transformers' text generation with a cache ('text-generation-with-past')"

# A number, or the name of an open dimension.
Dims = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Decoder:
    """The inputs and outputs of one step of a decoder.

    ``dims`` has the dimensions of every input as the file states them, ``bits`` the bits of its
    elements. ``cache`` has pairs of an input and the output that replaces it in the next step.
    ``batch``, ``tokens`` and ``past`` are the names of open dimensions: sequences, new tokens of a
    sequence, and its cached tokens. ``last_only`` is whether logits are those of the last token
    alone.
    """

    name: str
    dims: Mapping[str, Dims]
    bits: Mapping[str, int]
    cache: tuple[tuple[str, str], ...]
    logits: str
    batch: int | str
    tokens: str
    past: str
    last_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Decoder:
        """Read the JSON of :meth:`to_json`."""
        dims = {name: tuple(sizes) for name, sizes in facts["dims"].items()}
        cache = tuple((before, after) for before, after in facts["cache"])
        return cls(**{**facts, "dims": dims, "cache": cache})

    def with_open_dims(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of a step's ``proto`` with the open dimensions of the file."""
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for value in copy.graph.input:
            for dim, size in zip(
                value.type.tensor_type.shape.dim, self.dims.get(value.name, ()), strict=False
            ):
                dim.Clear()
                if isinstance(size, int):
                    dim.dim_value = size
                else:
                    dim.dim_param = size
        for value in copy.graph.output:
            value.type.tensor_type.ClearField("shape")
        del copy.graph.value_info[:]
        return copy

    def shapes(self, batch: int, tokens: int, past: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a step's inputs: ``tokens`` new after ``past`` cached tokens."""
        known: dict[int | str, int] = {self.tokens: tokens, self.past: past, self.batch: batch}
        shapes = {name: tuple(known.get(d, d) for d in dims) for name, dims in self.dims.items()}
        if MASK in shapes:
            shapes[MASK] = (*shapes[MASK][:1], past + tokens)
        for name, shape in shapes.items():
            for axis, size in enumerate(shape):
                if isinstance(size, str):
                    raise ShapeError(
                        f"{self.name}: dimension {size!r} of input {name!r} (axis {axis}) is"
                        " neither the batch nor a number of tokens: fix it in the file"
                    )
        if isinstance(self.batch, int) and self.batch != batch:
            raise ShapeError(f"{self.name}: its batch is fixed at {self.batch}: give --batch"
                             f" {self.batch}")  # fmt: skip
        return {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}

    def values(self, batch: int, tokens: int, past: int) -> dict[str, Any]:
        """Return the inputs of a step that may not be random: an open mask, ascending positions."""
        values: dict[str, Any] = {}
        if MASK in self.dims:
            values[MASK] = np.ones((batch, past + tokens), np.int64)
        if POSITIONS in self.dims:
            values[POSITIONS] = np.tile(np.arange(past, past + tokens, dtype=np.int64), (batch, 1))
        return values

    def cache_bytes(self, batch: int, tokens: int) -> int:
        """Return the bytes of keys and values of ``tokens`` cached tokens."""
        shapes = self.shapes(batch, 1, tokens)
        return sum(math.prod(shapes[name]) * self.bits[name] // 8 for name, _ in self.cache)


def decoder_of(path: Path, name: str) -> Decoder:
    """Read the decoder in the ONNX file ``path``, without its weights.

    Raises :class:`~bricks.errors.ModelError` for another model; the message names what it lacks.
    """
    graph = parse_model(skim(path)).graph
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in initializers}
    outputs = [value.name for value in graph.output]
    if IDS not in inputs:
        listed = ", ".join(map(repr, list(inputs)[:4]))
        raise ModelError(f"{name} is no decoder: it has no input {IDS!r} (but {listed}): {_EXPORT}")
    past = [input_ for input_ in inputs if input_.startswith(CACHE)]
    if not past:
        raise ModelError(f"{name} keeps no keys and values: it has no inputs {CACHE!r}…: {_EXPORT}")
    others = [input_ for input_ in inputs if input_ not in (IDS, MASK, POSITIONS, *past)]
    if others:
        raise ModelError(
            f"{name}: what its input {others[0]!r} holds while text is generated is not known:"
            " give it a value in the file"
        )
    cache = tuple((input_, _output_of(input_, outputs, name)) for input_ in past)
    others = [output for output in outputs if output not in {after for _, after in cache}]
    if not others:
        raise ModelError(f"{name} is no decoder: it has no output besides its cache: {_EXPORT}")
    dims = {input_: _dims(value) for input_, value in inputs.items()}
    if len(dims[IDS]) != 2 or not isinstance(dims[IDS][1], str):
        raise ModelError(f"{name}: {IDS!r} has no open number of tokens as its second dimension"
                         f": {_EXPORT}")  # fmt: skip
    batch, tokens = dims[IDS]
    lengths = {d for input_ in past for d in dims[input_] if isinstance(d, str) and d != batch}
    if len(lengths) != 1 or tokens in lengths:
        raise ModelError(f"{name}: {past[0]!r} has no single open length: {_EXPORT}")
    bits = {
        input_: ELEMENT_BITS[onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)]
        for input_, value in inputs.items()
    }
    (logits,) = (_dims(value) for value in graph.output if value.name == others[0])
    last_only = len(logits) == 3 and logits[1] == 1
    return Decoder(name, dims, bits, cache, others[0], batch, str(tokens), lengths.pop(), last_only)


def _output_of(past: str, outputs: Sequence[str], name: str) -> str:
    tails = (past.removeprefix("past_key_values"), past.removeprefix(CACHE))
    for tail in tails:
        for output in (f"{_PRESENT}{tail}", f"{_PRESENT}_key_values{tail}"):
            if output in outputs:
                return output
    raise ModelError(f"{name}: no output belongs to {past!r} ({_PRESENT}{tails[0]!s}): {_EXPORT}")


def _dims(value: onnx.ValueInfoProto) -> Dims:
    return tuple(
        dim.dim_value if dim.WhichOneof("value") == "dim_value" else dim.dim_param
        for dim in value.type.tensor_type.shape.dim
    )
