"""Sessions: made with one set of options, loaded with given weights, bound to given memory.

The only place that touches ONNX Runtime's session objects; its errors are translated here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.base import Placed, Placement
from bricks.backends.filling import filled
from bricks.errors import BackendError, first_line
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.tensor import TensorType
from bricks.graph.view import without_values

PROVIDERS = ["CPUExecutionProvider"]

# The runtime's name of an element type ("tensor(float)"), and ONNX's.
DTYPES = {
    "tensor(float)": "FLOAT", "tensor(double)": "DOUBLE", "tensor(float16)": "FLOAT16",
    "tensor(bfloat16)": "BFLOAT16", "tensor(float8e4m3fn)": "FLOAT8E4M3FN",
    "tensor(float8e4m3fnuz)": "FLOAT8E4M3FNUZ", "tensor(float8e5m2)": "FLOAT8E5M2",
    "tensor(float8e5m2fnuz)": "FLOAT8E5M2FNUZ", "tensor(int8)": "INT8", "tensor(int16)": "INT16",
    "tensor(int32)": "INT32", "tensor(int64)": "INT64", "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32", "tensor(uint64)": "UINT64",
    "tensor(int4)": "INT4", "tensor(uint4)": "UINT4", "tensor(bool)": "BOOL",
    "tensor(complex64)": "COMPLEX64", "tensor(complex128)": "COMPLEX128",
}  # fmt: skip

# Types that numpy has itself; the others travel as unsigned integers of the same width.
_FOREIGN = frozenset(name for name in DTYPES.values() if name.startswith(("BFLOAT", "FLOAT8")))


# How the runtime begins its messages, which says nothing to anybody.
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn whatever ONNX Runtime raises into a :class:`BackendError` of one line."""
    try:
        yield
    except BackendError:
        raise
    except MemoryError as exc:
        raise BackendError(f"onnxruntime ran out of memory while {doing}") from exc
    except Exception as exc:  # its errors have no common base of their own
        text = _CODE.sub("", first_line(exc))
        if "bad_alloc" in text or "Failed to allocate memory" in text:
            raise BackendError(f"onnxruntime ran out of memory while {doing}: {text}") from exc
        raise BackendError(f"onnxruntime failed while {doing}: {text}") from exc


def session_options(*, optimize: bool) -> ort.SessionOptions:
    """Options for a session on the global pool and the shared arena."""
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    options.add_session_config_entry("session.use_env_allocators", "1")
    # An arena keeps what it has had once, and weights are copied twice on their way in.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    # Synthetic values may decay to denormals, which are up to a hundred times slower
    # (microsoft/onnxruntime #7448); on both sides they count as zero.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options


def create_session(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], options: ort.SessionOptions
) -> ort.InferenceSession:
    """A session for ``proto``, whose initializers without values take those in ``weights``."""
    types = without_values(proto)
    if types:
        names = list(types)
        values = [to_value(weights[name], types[name]) for name in names]
        with translated("taking the weights"):
            options.add_external_initializers(names, values)
    with translated("creating a session"):
        return ort.InferenceSession(
            proto.SerializeToString(), options, providers=PROVIDERS, enable_fallback=0
        )


def stand_ins(types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """Arrays for weights whose values don't matter: views of one piece, as large as the largest.

    Elements are not zero, one or all equal: the runtime simplifies the graph for such constants.
    """
    largest = max((t.size_bytes for t in types.values()), default=0)
    memory = filled(largest, seed=0)
    return {name: at(memory, 0, type_) for name, type_ in types.items()}


def at(memory: np.ndarray, offset: int, type_: TensorType) -> np.ndarray:
    """The array of ``type_`` that lies at ``offset`` bytes in ``memory``."""
    flat = memory[offset : offset + type_.size_bytes]
    return flat.view(numpy_dtype(type_.dtype)).reshape(type_.shape)


def to_value(array: np.ndarray, type_: TensorType) -> ort.OrtValue:
    """An OrtValue over the array's own memory."""
    with translated(f"taking a value of type {type_}"):
        if type_.dtype in _FOREIGN:
            number = onnx.TensorProto.DataType.Value(type_.dtype)
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)
        return ort.OrtValue.ortvalue_from_numpy(array)


def to_array(value: ort.OrtValue) -> np.ndarray:
    """The values as a numpy array."""
    with translated(f"reading a result of type {value.data_type()}"):
        array: np.ndarray = value.numpy()
        return array


def static_type(value: ort.NodeArg) -> TensorType | None:
    """The type that the runtime has inferred; None if it is no tensor or its shape isn't sure.

    No dimensions may mean a scalar or a rank that isn't known: the runtime doesn't tell which.
    """
    dtype = DTYPES.get(value.type)
    if dtype is None or not value.shape or not all(isinstance(d, int) for d in value.shape):
        return None
    return TensorType(dtype, tuple(value.shape))


class LoadedSession:
    """A session that can be placed several times; keeps the memory of its weights alive."""

    def __init__(
        self,
        session: ort.InferenceSession,
        weights: Mapping[str, np.ndarray],
        inputs: Mapping[str, tuple[Callable[[], np.ndarray], TensorType]],
    ) -> None:
        self._session = session
        self._weights = weights
        self._inputs = inputs
        self._own: dict[str, np.ndarray] = {}  # made when a placement needs them: most don't

    def place(self, placement: Placement, region: np.ndarray) -> Placed:
        """Bind every input and output ahead of the runs, so that a run allocates nothing."""
        binding = self._session.io_binding()
        keep: list[object] = [self._session, binding, self._weights]
        unsure = []
        for (name, (make, type_)), offset in zip(
            self._inputs.items(), placement.inputs, strict=True
        ):
            if offset is None and name not in self._own:
                self._own[name] = make()
            buffer = self._own[name] if offset is None else at(region, offset, type_)
            value = to_value(buffer, type_)
            keep += (buffer, value)
            binding.bind_ortvalue_input(name, value)
        for output, offset in zip(self._session.get_outputs(), placement.outputs, strict=True):
            known = static_type(output)
            if known is None:
                unsure.append(output.name)  # the runtime allocates what depends on data
                continue
            memory = np.zeros(known.size_bytes, np.uint8) if offset is None else region
            buffer = at(memory, offset or 0, known)
            value = to_value(buffer, known)
            keep += (buffer, value)
            binding.bind_ortvalue_output(output.name, value)
        return PlacedSession(self._session, binding, unsure, keep)


class PlacedSession:
    """A session bound to its memory, but for outputs whose shapes are ``unsure`` until it runs."""

    def __init__(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        unsure: Sequence[str],
        keep: list[object],
    ) -> None:
        # The public wrapper adds Python calls of its own to each run, microseconds that a small
        # brick would be charged for.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding
        self._unsure = unsure
        self._bind_output = binding.bind_output
        self._keep = keep

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        for name in self._unsure:  # what was allocated for the last run may be of another shape
            self._bind_output(name)
        run, binding, clock = self._run, self._binding, time.perf_counter_ns
        try:
            start = clock()
            run(binding, None)
            return (clock() - start) * 1e-9
        except Exception:  # translated only now: setting that up would be part of the latency
            with translated("running it"):
                raise
