"""Instruments of devices whose runtimes run ONNX models: small models that they load.

A reference kernel (see :mod:`bricks.system.host_conditions`) is the same work in every release,
since caches hold its latency. Other models overwrite inputs of a brick, untimed and in place,
before it runs. They use all threads, like the step that wrote the input, so that they change little
else than its values.

The clamp (:class:`InputClamp`): a tiny result of ``exp`` is a denormal number, on which processors
compute up to twenty times slower; sines of large numbers are slow too. Trained models produce
hardly any such numbers. A walk over some of a model's bricks may omit the normalising ones, so that
activations grow from pass to pass; the clamp keeps them small.

Signs (:class:`InputSigns`; see ``graph.sketch``): the walk that measures a brick omits some of the
bricks before it, and its weights are others than the model's, so the values that the brick would
read there are others too. The signs change with each run: a processor's branch predictor learns
tens of thousands of signs that come again and again, and no deployed model reads the same input
twice.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import ClassVar, Protocol

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bricks.backends.base import Backend, BindableModel, Binding, BoundModel
from bricks.backends.input_values import sets_in_turn
from bricks.backends.instruments import ROW_BYTES, Instrumented, Instruments, Preparation
from bricks.graph.distributions import sign_pattern
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.sketch import Sketch
from bricks.graph.topology import all_nodes
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.system.host_conditions import CALLS, CONVOLUTION, EXCHANGE, PRODUCT, STREAM
from bricks.units.sample import Sample

# The keys under which backends load the models.
KERNEL, EVICTION_READ = "k1-{}", "eviction read"

_ROW_ELEMENTS = ROW_BYTES // 4

# The range of synthetic inputs (see ``graph.synthesis``).
_LIMIT = 1.0

# Each set is a session; further ones would take longer to load than they are worth.
_MOST_MODELS = 16


def reference_kernels() -> dict[str, onnx.ModelProto]:
    """The model of each reference kernel, by its name, in the order in which they are timed.

    The kernel of exchanging threads has activations so small that communication is a large part of
    its latency: on two cores that share no cache, it takes twice as long.
    """
    channels, size = CONVOLUTION
    rows, terms, columns = PRODUCT
    layers, batch, width = EXCHANGE
    pixels, product = [1, channels, size, size], [rows, columns]
    of_taps = ["in", "weight"]
    convolved = helper.make_node("Conv", of_taps, ["out"], pads=[1] * 4, kernel_shape=[3, 3])
    multiplied = helper.make_node("MatMul", ["in", "weight"], ["out"])
    added = helper.make_node("Add", ["in", "in"], ["out"])
    return {
        "convolution": float32_model(
            "convolution", [convolved], {"in": pixels}, {"out": pixels},
            [_weight(channels, channels, 3, 3)],
        ),
        "product": float32_model(
            "product", [multiplied], {"in": [rows, terms]}, {"out": product},
            [_weight(terms, columns)],
        ),
        "stream": float32_model("stream", [added], {"in": [*STREAM]}, {"out": [*STREAM]}),
        "calls": chain(CALLS),
        "exchange": _layers(layers, [batch, width]),
    }  # fmt: skip


def _layers(count: int, shape: list[int]) -> onnx.ModelProto:
    """Alternating matrix products and activations, on one weight."""
    nodes, value = [], "in"
    for i in range(count):
        nodes.append(helper.make_node("MatMul", [value, "weight"], [f"product{i}"]))
        nodes.append(helper.make_node("Relu", [f"product{i}"], [f"layer{i}"]))
        value = f"layer{i}"
    weight = _weight(shape[1], shape[1])
    return float32_model("reference", nodes, {"in": shape}, {value: shape}, [weight])


def _weight(*shape: int) -> TensorProto:
    """A weight without values: backends fill it."""
    return TensorProto(
        name="weight",
        data_type=TensorProto.FLOAT,
        dims=shape,
        data_location=TensorProto.EXTERNAL,
    )


def chain(length: int) -> onnx.ModelProto:
    """``length`` Relu nodes in a row, each on a single number."""
    names = ["in", *(f"v{i}" for i in range(1, length)), "out"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    return float32_model("probe", nodes, {"in": [1]}, {"out": [1]})


def eviction_read(size_bytes: int) -> onnx.ModelProto:
    """A read of ``size_bytes`` (rounded up to 4 KiB) with all threads, which writes few."""
    rows = max(1, -(-size_bytes // ROW_BYTES))
    node = helper.make_node("ReduceMax", ["in"], ["out"], axes=[1], keepdims=0)
    return float32_model("eviction_read", [node], {"in": [rows, _ROW_ELEMENTS]}, {"out": [rows]})


def float32_model(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    weights: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    """A model of opset 13, whose float32 inputs and outputs have these shapes."""
    stated_inputs, stated_outputs = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends.items()]
        for ends in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, name, stated_inputs, stated_outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


class InputOverwrite(Protocol):
    """One way to overwrite a float32 input; hashable, since equal ones share loaded models."""

    key: ClassVar[str]  # under which backends load the models

    def models(self) -> Sequence[onnx.ModelProto]:
        """Models which take turns, one at each run."""
        ...


def float32_inputs(proto: onnx.ModelProto) -> Iterator[tuple[int, str, int]]:
    """Position, name and number of elements of the inputs that can be overwritten."""
    graph = graph_of(proto)
    for position, name in enumerate(graph.inputs):
        type_ = graph.types[name]
        if isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements:
            yield position, name, type_.elements


def overwriting_model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    elements: int,
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model whose ``nodes`` make ``out`` from ``in``, both of so many ``elements``."""
    return float32_model(name, nodes, {"in": [elements]}, {"out": [elements]}, constants)


# Found by running some fifty operators with ONNX Runtime on inputs of magnitudes from 1e-25 to
# 1e30. Attention is listed because it contains a softmax.
_MAGNITUDE_SENSITIVE = frozenset(
    (
        *("Softmax", "LogSoftmax", "BiasSoftmax", "Exp", "Softplus", "Mish"),
        *("Elu", "Selu", "Celu", "Sin", "Cos", "Tan"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)


@dataclass(frozen=True, slots=True)
class InputClamp:
    """The clamp of an input of so many ``elements``."""

    elements: int
    key: ClassVar[str] = "input clamp"

    def models(self) -> Sequence[onnx.ModelProto]:
        """A single Clip."""
        limits = {"low": -_LIMIT, "high": _LIMIT}
        clip = helper.make_node("Clip", ["in", "low", "high"], ["out"])
        bounds = [helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in limits.items()]
        return [overwriting_model("input_clamp", [clip], self.elements, bounds)]


def clamps(proto: onnx.ModelProto) -> dict[int, InputClamp]:
    """The clamps that run before ``proto``, by position of the input."""
    if not any(node.op_type in _MAGNITUDE_SENSITIVE for node in all_nodes(proto.graph)):
        return {}
    return {position: InputClamp(elements) for position, _, elements in float32_inputs(proto)}


@dataclass(frozen=True, slots=True)
class InputSigns:
    """The signs of an input of so many ``elements``, which a ``sketch`` describes."""

    elements: int
    sketch: Sketch
    key: ClassVar[str] = "input signs"

    def models(self) -> Sequence[onnx.ModelProto]:
        """One model for each set of signs."""
        count = min(_MOST_MODELS, sets_in_turn(self.elements))
        return [self._model(seed) for seed in range(count)]

    def _model(self, seed: int) -> onnx.ModelProto:
        """Magnitudes times signs; a sketch with a size replaces the magnitudes too."""
        sketch, nodes = self.sketch, [helper.make_node("Abs", ["in"], ["size"])]
        if sketch.log_size is None:
            negative, changes = sketch.negative or 0.0, sketch.changes or 0.0
            constants = {"signs": sign_pattern(self.elements, negative, changes, seed)}
        else:
            ones = np.ones(self.elements, np.float32)
            constants = {"one": np.ones((), np.float32), "signs": sketch.drawn(ones, seed)}
            nodes.append(helper.make_node("Clip", ["size", "one", "one"], ["ones"]))
        nodes.append(helper.make_node("Mul", [*nodes[-1].output, "signs"], ["out"]))
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        return overwriting_model("input_signs", nodes, self.elements, tensors)


def signs(proto: onnx.ModelProto) -> dict[int, InputSigns]:
    """The signs that are written before ``proto`` runs, by position of the input."""
    noted = noted_sketches(proto)
    sketches = {name: sketch for name, sketch in noted.items() if sketch.signs_only}
    if not sketches:
        return {}
    return {
        position: InputSigns(elements, sketches[name])
        for position, name, elements in float32_inputs(proto)
        if name in sketches
    }


def instruments_of(backend: Backend) -> Instruments:
    """The instruments of the device that a backend uses."""
    return backend.instruments() if isinstance(backend, Instrumented) else OnnxInstruments(backend)


class OnnxInstruments(Instruments):
    """ONNX models that ``backend`` loads without optimising them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._overwrites: dict[InputOverwrite, Sequence[BindableModel]] = {}

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """The largest number of each row."""
        read = self._load(eviction_read(len(memory)), EVICTION_READ)
        return read.bind(Binding((0,), (None,)), memory)

    def preparation(self, proto: onnx.ModelProto) -> Preparation:
        """Clamps, then signs."""
        return _Overwriting(self, [*clamps(proto).items(), *signs(proto).items()])

    def unload(self) -> None:
        """Unload all models that overwrite inputs."""
        self._overwrites.clear()

    def loaded(self, overwrite: InputOverwrite) -> Sequence[BindableModel]:
        """The models of ``overwrite``, which are loaded once."""
        if overwrite not in self._overwrites:
            self._overwrites[overwrite] = [
                self._load(model, overwrite.key) for model in overwrite.models()
            ]
        return self._overwrites[overwrite]

    def _load(self, model: onnx.ModelProto, key: str) -> BindableModel:
        return self._backend.load(model, key=key, optimize=False)


@dataclass(frozen=True, slots=True)
class _Overwriting:
    """The overwrites of a brick's inputs, each with the position of its input, in order."""

    instruments: OnnxInstruments
    overwrites: Sequence[tuple[int, InputOverwrite]]

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """See :class:`Preparation`: the synthetic values of inputs without an offset stay."""
        work: list[BoundModel] = []
        for position, overwrite in self.overwrites:
            offset = offsets[position]
            if offset is not None:
                in_place = Binding((offset,), (offset,))
                loaded = self.instruments.loaded(overwrite)
                bound = [model.bind(in_place, region) for model in loaded]
                work.append(bound[0] if len(bound) == 1 else _InTurn(bound))
        return work


class _InTurn:
    """Models bound to the same memory, which take turns."""

    def __init__(self, bound: Sequence[BoundModel]) -> None:
        self._turns = cycle(bound)

    def sample(self) -> Sample:
        """Run the next model."""
        return next(self._turns).sample()
