"""Operators to compare over runtimes, as ONNX models or PyTorch programs; and the work of each.

Users name them by lists, single operators of a list, ONNX files and programs. The sizes of one list
are facts of https://github.com/baidu-research/DeepBench (``code/kernels/*_problems.h``, revision
da81ba7, its sets for inference): convolutions, matrix products and recurrent layers. They are a
selection: all that is here takes from microseconds to some hundred milliseconds on one core. Must
not know runtimes, nor how operators are run or compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper

from bricks.backends import default, offer
from bricks.decompose.plan import shapes
from bricks.errors import ModelError, UsageError, suggestion
from bricks.graph.form import ModelForm, operator_title
from bricks.graph.payload import numpy_dtype
from bricks.graph.types import ELEMENT_BITS, TensorType
from bricks.graph.view import parse_model, source_graph
from bricks.operators.registry import flops
from bricks.samples.measurement import Measurement
from bricks.sources import Function, find_files
from bricks.studies.numerics.results import Work
from bricks.zoo import entries, is_entry

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.graph.types import ValueType
    from bricks.store import Reading
    from bricks.system import Target

UNKNOWN = Work(None, None)
SOURCE = "https://github.com/baidu-research/DeepBench"

_OPSET, _IR_VERSION = 17, 8
DEEPBENCH, ZOO = "deepbench", "zoo"
LISTS = (DEEPBENCH, ZOO)

# The default number of the zoo's costliest bricks.
TOP = 100


def bytes_of(types: Iterable[ValueType | None]) -> int | None:
    """The bytes of values of these types; None if a size is unknown."""
    total = 0
    for type_ in types:
        if not isinstance(type_, TensorType) or type_.dtype not in ELEMENT_BITS:
            return None
        total += type_.size_bytes
    return total


def work_of(model: Model) -> Work:
    """The work of ``model`` before optimisation; inputs, weights and outputs count once."""
    try:
        graph = source_graph(model)
    except ModelError:  # a shape is open, or an operator's is not known
        return UNKNOWN
    names = {*graph.inputs, *graph.initializers, *graph.outputs}
    return Work(
        flops(graph, range(len(graph.nodes))), bytes_of([graph.types.get(name) for name in names])
    )


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """A model of one or few nodes from ``source``.

    ``onnx`` is an ONNX model or its file, ``program`` a program to record; at most one is None.
    ``values`` are values of inputs that determine the work (see :func:`bricks.read_model`).
    ``work`` is None unless it is known ahead.
    """

    name: str
    source: str
    onnx: onnx.ModelProto | Path | None = None
    program: Function | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    work: Work | None = None

    def has(self, form: ModelForm) -> bool:
        """Whether the operator is specified in this form."""
        return {ModelForm.MODELS: self.onnx, ModelForm.PROGRAMS: self.program}[form] is not None


@dataclass(frozen=True, slots=True)
class Convolution:
    """A two-dimensional convolution without bias of images in the order NCHW."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    rows: int
    columns: int
    pad_rows: int
    pad_columns: int
    stride_rows: int
    stride_columns: int

    function: ClassVar[str] = "convolution"

    @property
    def name(self) -> str:
        """Sizes of input and filters: ``conv_1x64x54x54_64x3x3``, and the stride if it is not 1."""
        of_input = f"{self.batch}x{self.channels}x{self.height}x{self.width}"
        stride = f"_s{self.stride_rows}" if self.stride_rows > 1 else ""
        return f"conv_{of_input}_{self.filters}x{self.rows}x{self.columns}{stride}"

    def model(self) -> onnx.ModelProto:
        """As a node Conv, whose filters are a weight."""
        pads = [self.pad_rows, self.pad_columns]
        node = helper.make_node(
            "Conv", ["x", "w"], ["y"], kernel_shape=[self.rows, self.columns], pads=pads + pads,
            strides=[self.stride_rows, self.stride_columns],
        )  # fmt: skip
        heights = (self.height + 2 * self.pad_rows - self.rows) // self.stride_rows + 1
        widths = (self.width + 2 * self.pad_columns - self.columns) // self.stride_columns + 1
        return _model(
            node,
            {"x": [self.batch, self.channels, self.height, self.width]},
            {"y": [self.batch, self.filters, heights, widths]},
            {"w": [self.filters, self.channels, self.rows, self.columns]},
        )


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two matrices, ``rows`` by ``terms`` and ``terms`` by ``columns``."""

    rows: int
    columns: int
    terms: int

    function: ClassVar[str] = "product"

    @property
    def name(self) -> str:
        """DeepBench's M, N and K: ``gemm_35x700x2048``."""
        return f"gemm_{self.rows}x{self.columns}x{self.terms}"

    def model(self) -> onnx.ModelProto:
        """As a node MatMul of two inputs, so that no runtime can reorder one of them ahead."""
        return _model(
            helper.make_node("MatMul", ["a", "b"], ["y"]),
            {"a": [self.rows, self.terms], "b": [self.terms, self.columns]},
            {"y": [self.rows, self.columns]},
            {},
        )


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrent layer of one direction without bias, whose input is as wide as its state.

    DeepBench leaves the product of weights and input out, which runtimes do not: here it is part of
    the layer. ``cell`` is ``vanilla`` (with a ReLU), ``lstm`` or ``gru`` (with tanh, and the reset
    after the product, as cuDNN and PyTorch compute it).
    """

    cell: str
    hidden: int
    batch: int
    steps: int

    function: ClassVar[str] = "recurrent"

    @property
    def name(self) -> str:
        """Hidden units, batch and time steps: ``lstm_512x1x25``."""
        return f"{self.cell}_{self.hidden}x{self.batch}x{self.steps}"

    def model(self) -> onnx.ModelProto:
        """As a node RNN, LSTM or GRU with weights; only the states of all steps are wanted."""
        operator, gates, attributes = _CELLS[self.cell]
        node = helper.make_node(
            operator, ["x", "w", "r"], ["y"], hidden_size=self.hidden, **attributes
        )
        weight = [1, gates * self.hidden, self.hidden]
        return _model(
            node,
            {"x": [self.steps, self.batch, self.hidden]},
            {"y": [self.steps, 1, self.batch, self.hidden]},
            {"w": weight, "r": weight},
        )


_CELLS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "vanilla": ("RNN", 1, {"activations": ["Relu"]}),
    "lstm": ("LSTM", 4, {}),
    "gru": ("GRU", 3, {"linear_before_reset": 1}),
}

Kernel = Convolution | Product | Recurrent

# inference_server_set of conv_problems.h.
CONVOLUTIONS = (
    Convolution(1, 1, 161, 700, 32, 5, 20, 0, 0, 2, 2),
    Convolution(1, 32, 79, 341, 32, 5, 10, 0, 0, 2, 2),
    Convolution(1, 1, 48, 480, 16, 3, 3, 1, 1, 1, 1),
    Convolution(1, 32, 12, 120, 64, 3, 3, 1, 1, 1, 1),
    Convolution(1, 3, 108, 108, 64, 3, 3, 1, 1, 2, 2),
    Convolution(1, 64, 54, 54, 64, 3, 3, 1, 1, 1, 1),
    Convolution(1, 128, 14, 14, 256, 3, 3, 1, 1, 1, 1),
    Convolution(1, 3, 224, 224, 64, 3, 3, 1, 1, 1, 1),
    Convolution(1, 64, 112, 112, 128, 3, 3, 1, 1, 1, 1),
    Convolution(1, 256, 28, 28, 512, 3, 3, 1, 1, 1, 1),
    Convolution(1, 512, 7, 7, 512, 3, 3, 1, 1, 1, 1),
    Convolution(1, 3, 224, 224, 64, 7, 7, 3, 3, 2, 2),
    Convolution(1, 192, 28, 28, 32, 5, 5, 2, 2, 1, 1),
    Convolution(1, 64, 56, 56, 256, 1, 1, 0, 0, 1, 1),
    Convolution(1, 1024, 14, 14, 2048, 1, 1, 0, 0, 2, 2),
)

# inference_server_set and, the last four, inference_device_set of gemm_problems.h: M, N, K.
PRODUCTS = (
    Product(35, 700, 2048),
    Product(35, 700, 2560),
    Product(1024, 700, 512),
    Product(512, 1500, 1536),
    Product(7680, 1, 2560),
    Product(7680, 4, 2560),
    Product(6144, 1, 2048),
    Product(3072, 1, 1024),
    Product(3072, 4, 1024),
    Product(512, 1, 512),
    Product(1024, 4, 512),
    Product(64, 1, 1216),
    Product(128, 1500, 1280),
    Product(3072, 1500, 128),
    Product(176, 1500, 1408),
)

# inference_server_set and, of vanilla cells, inference_device_set of rnn_problems.h. Most of its
# GRUs have hundreds of steps of thousands of units, and take seconds: they are left out.
RECURRENT = (
    Recurrent("vanilla", 32, 1, 672),
    Recurrent("vanilla", 64, 1, 96),
    Recurrent("lstm", 256, 1, 150),
    Recurrent("lstm", 512, 1, 25),
    Recurrent("lstm", 512, 4, 25),
    Recurrent("lstm", 1024, 1, 25),
    Recurrent("gru", 512, 1, 1),
    Recurrent("gru", 512, 4, 1),
)

KERNELS: Sequence[Kernel] = (*CONVOLUTIONS, *PRODUCTS, *RECURRENT)


def operator_of(kernel: Kernel) -> OperatorCase:
    """A size as an operator, in ONNX and as a PyTorch program."""
    counterparts = offer(default(ModelForm.PROGRAMS)).counterparts
    assert counterparts is not None, "the runtime of programs has them"
    entry = f"{counterparts.operators}:{kernel.function}"
    return OperatorCase(
        kernel.name, SOURCE, kernel.model(), Function(entry, arguments=asdict(kernel))
    )


def deepbench() -> list[OperatorCase]:
    """All of the selection."""
    return [operator_of(kernel) for kernel in KERNELS]


def _model(
    node: onnx.NodeProto,
    inputs: Mapping[str, list[int]],
    outputs: Mapping[str, list[int]],
    weights: Mapping[str, list[int]],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "operator",
        [_value(name, shape) for name, shape in inputs.items()],
        [_value(name, shape) for name, shape in outputs.items()],
        [_weight(name, shape) for name, shape in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )


def _value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _weight(name: str, shape: list[int]) -> TensorProto:
    """A weight whose values are nowhere, so that they are synthetic."""
    weight = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight


@dataclass(frozen=True, slots=True)
class ZooSource:
    """A store with measurements of the zoo on ``target``; its ``top`` costliest bricks are listed.

    ``granularity`` is the granularity of its plans.
    """

    known: Reading
    target: Target
    granularity: str
    top: int = TOP


def operators_named(word: str, zoo: ZooSource | None) -> list[OperatorCase]:
    """The operators that ``word`` names: a list, one of a list, an ONNX file or a program.

    ``zoo`` is the source of the list of that name; None if no known system has measured it. Raises
    :class:`UsageError` for a word that names nothing, with the nearest, and :class:`ModelError` for
    a file that is not there.
    """
    if word == DEEPBENCH:
        return deepbench()
    if word == ZOO:
        if zoo is None:
            raise UsageError(
                "no system with measurements of the zoo is known: import some, or give a file"
            )
        return costliest(zoo)
    kernels = {kernel.name: kernel for kernel in KERNELS}
    if word in kernels:
        return [operator_of(kernels[word])]
    if is_entry(word):
        return [OperatorCase(word, word, program=Function(word))]
    if Path(word).suffix.lower() == ".onnx" or Path(word).exists():
        return [OperatorCase(f.title, str(f.path), onnx=f.path) for f in find_files(word)]
    raise UsageError(
        f"no list, operator or file is called {word!r}: {suggestion(word, [*LISTS, *kernels])}"
    )


def costliest(zoo: ZooSource) -> list[OperatorCase]:
    """The bricks that take longest when each model of the zoo runs once, the costliest first.

    Raises :class:`ModelError` if the target has measured none of them.
    """
    of_zoo = {entry.name for entry in entries()}
    times: dict[str, int] = {}
    for name, usage in zoo.known.plans.usage(zoo.target.key, zoo.granularity):
        if name in of_zoo:
            for key, used in usage.items():
                times[key] = times.get(key, 0) + used.occurrences
    results = zoo.known.measurements.results(zoo.target.key, sorted(times))
    total_s = {
        key: times[key] * result.latency_s
        for key, result in results.items()
        if isinstance(result, Measurement)
    }
    if not total_s:
        raise ModelError(f"no brick of the zoo is measured on {zoo.target.system.name}")
    chosen = sorted(total_s, key=lambda key: (-total_s[key], key))[: zoo.top]
    bricks = zoo.known.plans.load_bricks(chosen)
    return [_of_brick(bricks[key], zoo.target) for key in chosen]


def _of_brick(brick: Brick, target: Target) -> OperatorCase:
    operators = "+".join(operator_title(name) for name in brick.operators)
    types = [*brick.inputs.values(), *brick.weights.values(), *brick.outputs.values()]
    return OperatorCase(
        f"{operators}_{brick.key.removeprefix('b1-')[:8]}",
        f"brick {brick.key} of the zoo, by its latency on {target.system.name}: {shapes(brick)}",
        onnx=parse_model(brick.model),
        values={
            name: _array(brick.inputs[name], example) for name, example in brick.examples.items()
        },
        work=Work(brick.flops, bytes_of(types)),
    )


def _array(type_: object, values: Sequence[float]) -> np.ndarray:
    assert isinstance(type_, TensorType), "what steers is a tensor"
    return np.array(values).astype(numpy_dtype(type_.dtype)).reshape(type_.shape)
