"""The sweep's single calls as bricks with measurements, in the form of recorded programs' calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.raw import Run, SweptCall
from bricks.decompose.build import single_call
from bricks.decompose.plan import Brick
from bricks.graph.program import Call, Port, contiguous
from bricks.graph.types import TensorType
from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Sample

Shape = tuple[int, ...]

_TYPES = {"torch.float32": "FLOAT", "torch.bfloat16": "BFLOAT16"}
_OTHER = {"FLOAT": "BFLOAT16", "BFLOAT16": "FLOAT"}
_HOST_S = 1e-9


@dataclass(frozen=True, slots=True)
class SweptBrick:
    """A call of the sweep as a brick, with its measurement."""

    family: str
    brick: Brick
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class _Form:
    """A call with the shapes and types of its tensors; ``kernels`` are those of the call itself."""

    operator: str
    arguments: list[Any]
    inputs: Sequence[TensorType]
    outputs: Sequence[TensorType]
    strides: Mapping[int, Shape] | None = None
    aliases: Sequence[int] = ()
    skipped: int = 0


def swept_bricks(calls: Iterable[SweptCall]) -> Iterator[SweptBrick]:
    """The calls whose form is known; strided copies are left out, since their axes are not kept."""
    for call in calls:
        form = _form(call)
        if form is not None:
            brick = _brick(form)
            rounds = tuple(_rounds(call.kernels, form.skipped))
            yield SweptBrick(call.family, brick, Measurement(brick.key, rounds, 0.0))


def _rounds(kernels: Mapping[int | None, tuple[Run, ...]], skipped: int) -> Iterator[Round]:
    for displaced, runs in kernels.items():
        for run in runs:
            yield Round.of([Sample(_HOST_S, run[skipped:], displaced)])


def _brick(form: _Form) -> Brick:
    ports = tuple(
        Port(at, 0, (form.strides or {}).get(at, contiguous(type_.shape)))
        for at, type_ in enumerate(form.inputs)
    )
    seen = ports if form.strides else ()
    call = Call("aten", form.operator, (form.arguments, {}), seen, tuple(form.aliases))
    return single_call(call, form.inputs, form.outputs)


def _form(call: SweptCall) -> _Form | None:
    make = _FORMS.get(call.family)
    return None if make is None else make(_TYPES[call.dtype], call)


def _t(count: int, begin: int = 0) -> list[Any]:
    return [{"t": at} for at in range(begin, begin + count)]


def _mm(dtype: str, call: SweptCall) -> _Form:
    m, n, k, transposed = call.sizes
    strides = {1: (1, k)} if transposed else None
    return _Form(
        "mm",
        _t(2),
        [TensorType(dtype, (m, k)), TensorType(dtype, (k, n))],
        [TensorType(dtype, (m, n))],
        strides,
    )


def _addmm(dtype: str, call: SweptCall) -> _Form:
    m, n, k = call.sizes
    inputs = [TensorType(dtype, (n,)), TensorType(dtype, (m, k)), TensorType(dtype, (k, n))]
    return _Form("addmm", _t(3), inputs, [TensorType(dtype, (m, n))], {2: (1, k)})


def _bmm(dtype: str, call: SweptCall) -> _Form:
    b, m, n, k = call.sizes
    return _Form(
        "bmm",
        _t(2),
        [TensorType(dtype, (b, m, k)), TensorType(dtype, (b, k, n))],
        [TensorType(dtype, (b, m, n))],
    )


def _window(call: SweptCall) -> tuple[Shape, Shape, Shape, list[Any]]:
    """Shapes of data, filter and output of a convolution, and its arguments after the tensors."""
    n, terms, outputs, size, taps, stride, groups, _ = call.sizes
    padding = taps // 2
    to = (size + 2 * padding - taps) // stride + 1
    rest = [[stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups]
    shapes = (n, terms, size, size), (outputs, terms // groups, taps, taps), (n, outputs, to, to)
    return *shapes, rest


def _last(shape: Shape) -> Shape:
    """The strides of an image whose channels lie innermost."""
    _, channels, height, width = shape
    return (channels * height * width, 1, width * channels, channels)


def _convolution(dtype: str, call: SweptCall) -> _Form:
    data, weight, out, rest = _window(call)
    strides = {0: _last(data), 1: _last(weight)} if call.sizes[-1] else None
    arguments = [*_t(2), None, *rest]
    return _Form(
        "convolution",
        arguments,
        [TensorType(dtype, data), TensorType(dtype, weight)],
        [TensorType(dtype, out)],
        strides,
    )


def _gradients(dtype: str, call: SweptCall) -> _Form:
    data, weight, out, rest = _window(call)
    strides = {0: _last(out), 1: _last(data), 2: _last(weight)} if call.sizes[-1] else None
    inputs = [TensorType(dtype, shape) for shape in (out, data, weight)]
    outputs = [TensorType(dtype, shape) for shape in (data, weight)]
    arguments = [*_t(3), [0], *rest, [True, True, False]]
    return _Form("convolution_backward", arguments, inputs, outputs, strides)


def _attention(dtype: str, call: SweptCall) -> _Form:
    batch, heads, queries, keys, size, causal = call.sizes
    q, k = (batch, heads, queries, size), (batch, heads, keys, size)
    kind = "efficient" if dtype == "FLOAT" else "cudnn"
    rest = [None, False, 0.0, causal]
    inputs = [TensorType(dtype, q), TensorType(dtype, k), TensorType(dtype, k)]
    return _Form(
        f"_scaled_dot_product_{kind}_attention", [*_t(3), *rest], inputs, [TensorType(dtype, q)]
    )


def _attention_gradients(dtype: str, call: SweptCall) -> _Form:
    """Its runs begin with the forward pass: one kernel, after a set of memory in bfloat16."""
    batch, heads, queries, size, causal = call.sizes
    shape = (batch, heads, queries, size)
    lse = TensorType("FLOAT", (batch, heads, queries))
    inputs = [TensorType(dtype, shape)] * 5 + [lse]
    outputs = [TensorType(dtype, shape)] * 3
    if dtype == "FLOAT":
        arguments = [*_t(4), None, *_t(2, 4), None, None, 0.0, [True] * 3 + [False], causal]
        name, skipped = "_scaled_dot_product_efficient_attention_backward", 1
    else:
        arguments = [*_t(6), None, None, None, None, None, queries, queries, 0.0, causal]
        name, skipped = "_scaled_dot_product_cudnn_attention_backward", 2
    return _Form(name, arguments, inputs, outputs, skipped=skipped)


def _batch_norm(dtype: str, call: SweptCall) -> _Form:
    n, channels, size, training = call.sizes
    image = TensorType(dtype, (n, channels, size, size))
    each = TensorType(dtype, (channels,))
    arguments = [*_t(5), training, 0.1, 1e-5]
    return _Form("cudnn_batch_norm", arguments, [image] + [each] * 4, [image, each, each])


def _embedding(dtype: str, call: SweptCall) -> _Form:
    rows, size, table = call.sizes
    inputs = [TensorType(dtype, (table, size)), TensorType("INT64", (rows,))]
    return _Form("embedding", _t(2), inputs, [TensorType(dtype, (rows, size))])


def _reduction(dtype: str, call: SweptCall) -> _Form:
    rows, size, operator = call.sizes
    data, each, kept = (
        TensorType(dtype, (rows, size)),
        TensorType(dtype, (size,)),
        TensorType(dtype, (rows, 1)),
    )
    forms = {
        "layer_norm": ("native_layer_norm", [{"t": 0}, [size], *_t(2, 1), 1e-5],
                       [data, each, each], [data, kept, kept]),
        "rms": ("_fused_rms_norm", [{"t": 0}, [size], {"t": 1}, None], [data, each], [data, kept]),
        "softmax": ("_softmax", [{"t": 0}, -1, False], [data], [data]),
        "sum0": ("sum.dim_IntList", [{"t": 0}, [0]], [data], [TensorType(dtype, (size,))]),
        "sum": ("sum.dim_IntList", [{"t": 0}, [-1]], [data], [TensorType(dtype, (rows,))]),
        "mean": ("mean.dim", [{"t": 0}, [-1]], [data], [TensorType(dtype, (rows,))]),
        "amax": ("amax", [{"t": 0}, [-1]], [data], [TensorType(dtype, (rows,))]),
    }  # fmt: skip
    return _Form(*forms[operator])


def _elementwise(dtype: str, call: SweptCall) -> _Form:
    size, operator = call.sizes
    data = TensorType(dtype, (size,))
    forms: dict[str, tuple[Any, ...]] = {
        "add": ("add.Tensor", _t(2), [data, data], [data]),
        "add_": ("add_.Tensor", _t(2), [data, data], [data], None, (0,)),
        "mul": ("mul.Tensor", _t(2), [data, data], [data]),
        "sigmoid": ("sigmoid", _t(1), [data], [data]),
        "gelu": ("gelu", _t(1), [data], [data]),
        "copy": ("clone", _t(1), [data], [data]),
        "cast": ("_to_copy", _t(1), [data], [TensorType(_OTHER[dtype], (size,))]),
        # Its runs begin with the comparison that makes the condition.
        "where": ("where.self", _t(3), [TensorType("BOOL", (size,)), data, data], [data],
                  None, (), 1),
    }  # fmt: skip
    return _Form(*forms[operator])


def _foreach(dtype: str, call: SweptCall) -> _Form:
    count, size, operator = call.sizes
    lists = {"add": 2, "lerp": 2, "sqrt": 1, "addcdiv": 3}[operator]
    names = {
        "add": "_foreach_add_.List", "lerp": "_foreach_lerp_.Scalar", "sqrt": "_foreach_sqrt",
        "addcdiv": "_foreach_addcdiv_.ScalarList",
    }  # fmt: skip
    arguments: list[Any] = [_t(count, at * count) for at in range(lists)]
    inputs = [TensorType(dtype, (size,))] * (lists * count)
    aliases = () if operator == "sqrt" else tuple(range(count))
    outputs = [TensorType(dtype, (size,))] * count
    return _Form(names[operator], arguments, inputs, outputs, None, aliases)


_FORMS = {
    "mm": _mm, "addmm": _addmm, "bmm": _bmm, "conv": _convolution, "conv_backward": _gradients,
    "sdpa": _attention, "sdpa_backward": _attention_gradients, "batch_norm": _batch_norm,
    "embedding": _embedding, "reduction": _reduction, "elementwise": _elementwise,
    "foreach": _foreach,
}  # fmt: skip
