"""Models read and compiled with OpenVINO, bound to memory and ready to run.

Weights are not serialised: the model refers to them by their addresses in memory, which OpenVINO's
reader of ONNX files takes as a file of external data.

Inputs and outputs are views of the memory that they are bound to, so that a run copies nothing. A
request of OpenVINO's times itself, so the time that Python spends on a run does not count. Must not
know bricks, nor how a model was made.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import openvino as ov

from bricks.backends.base import Binding, RotatingInputs
from bricks.backends.input_values import Rotation, Turns
from bricks.backends.synthetic_data import TensorInputs
from bricks.errors import BackendError, BricksError, first_line
from bricks.graph.payload import WeightReference, is_referenced, numpy_dtype, set_reference
from bricks.graph.types import ELEMENT_BITS, TensorType
from bricks.units.sample import Sample

# The location of external data in memory; their offset is an address.
_IN_MEMORY = "*/_ORT_MEM_ADDR_/*"

# Positions in OpenVINO's source code, which begin its messages.
_SOURCE_POSITION = re.compile(r"(?:Exception from |Check '.*?' failed at )?src/\S+:\d+:?\s*")

# Nodes of OpenVINO's own graph that it was checking, by names that no model has.
_ITS_NODES = re.compile(
    r"While validating (?:ONNX )?node '.*?'(?: with friendly_name '.*?')?:\s*"
    r"|Shape inference input shapes \{.*?\}\s+"
)

# Operators of the model that it cannot convert: those that it does not have, and one that it
# refuses, with its reason.
_LACKING = re.compile(r"No conversion rule found for operations: (.+)")
_REFUSED = re.compile(r"^-- (\S+) with a message:\n(.*?)(?=^-- |^Summary:|\Z)", re.M | re.S)
_OPERATOR = re.compile(r"(\S+)-(\d+)")

# An operator of its own, which it makes of a sequence that leaves a model.
_SEQUENCE = "util::SequenceMark"

# Element types that numpy lacks.
_FOREIGN = {"BFLOAT16": ov.Type.bf16, "FLOAT8E4M3FN": ov.Type.f8e4m3, "FLOAT8E5M2": ov.Type.f8e5m2}


class Compiler:
    """Compiles models for the processor, all with one stream and threads that are not pinned.

    Without ``precision``, OpenVINO would choose bfloat16 where the processor has it. Threads may
    share a core, so that there are as many as requested.
    """

    def __init__(self, threads: int, precision: str) -> None:
        self._core = ov.Core()
        self.precision = precision
        self._settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            "ENABLE_HYPER_THREADING": True,
        }

    def read(self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> ov.Model:
        """``proto`` as OpenVINO's own graph; the arrays of ``weights`` must stay where they are."""
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for tensor in copy.graph.initializer:
            if is_referenced(tensor):
                values = weights[tensor.name]
                if values.nbytes:
                    set_reference(
                        tensor, WeightReference(_IN_MEMORY, values.ctypes.data, values.nbytes)
                    )
                else:
                    del tensor.external_data[:]
                    tensor.data_location = onnx.TensorProto.DEFAULT
                    tensor.raw_data = b""
        with translated("reading the model"):
            return self._core.read_model(copy.SerializeToString())

    def compile(self, model: ov.Model, *, counted: bool = False) -> ov.CompiledModel:
        """``model``, ready to run; with counters of its kernels if ``counted``."""
        with translated("compiling the model"):
            return self._core.compile_model(model, "CPU", self._settings | {"PERF_COUNT": counted})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn any exception of OpenVINO into a :class:`BackendError` of one line."""
    try:
        yield
    except (BricksError, MemoryError):
        raise
    except Exception as exc:  # its errors have no common base class
        text = _reason(str(exc))
        if "bad_alloc" in text or "allocate memory" in text:
            raise MemoryError(text) from exc
        raise BackendError(f"OpenVINO failed while {doing}: {text}") from exc


def _reason(text: str) -> str:
    """What OpenVINO says, in one line, without its own nodes and positions in its source."""
    if (lacking := _LACKING.search(text)) is not None:
        if _SEQUENCE in lacking[1]:
            return "it passes no sequences of tensors into or out of a model, and so of a brick"
        return f"it has no {_OPERATOR.sub(_of_opset, lacking[1])}"
    if (refused := _REFUSED.search(text)) is not None:
        text = f"it refuses {_OPERATOR.sub(_of_opset, refused[1])}: {refused[2]}"
    return first_line(Exception(_ITS_NODES.sub("", _SOURCE_POSITION.sub("", text))))


def _of_opset(operator: re.Match[str]) -> str:
    return f"{operator[1]} (opset {operator[2]})"


def to_tensor(values: np.ndarray, dtype: str, shape: Sequence[int]) -> ov.Tensor:
    """A tensor of the ONNX type ``dtype`` and this shape over the memory of ``values``."""
    with translated(f"taking values of type {dtype.lower()}"):
        if dtype in _FOREIGN or ELEMENT_BITS[dtype] < 8:
            short = dtype.lower().replace("uint", "u").replace("int", "i")
            kind = _FOREIGN.get(dtype) or getattr(ov.Type, short)
            return ov.Tensor(values, ov.Shape(list(shape)), kind)
        return ov.Tensor(values.reshape(tuple(shape)), shared_memory=True)


class Ports:
    """The inputs and outputs of a model.

    ``inputs`` are in the order of the model; those in ``fixed`` are constants of the compiled model
    instead, with these values.
    """

    def __init__(self, inputs: TensorInputs, fixed: Mapping[str, Any]) -> None:
        self._inputs = {name: made for name, made in inputs.items() if name not in fixed}
        self._is_bound = [name not in fixed for name in inputs]
        self._rotation = Rotation()

    @property
    def inputs(self) -> int:
        """The number of inputs of the compiled model."""
        return len(self._inputs)

    def tensors(self, inputs: TensorInputs) -> list[ov.Tensor]:
        """Values of ``inputs``, of these names and any shapes, for the compiled model's inputs."""
        made = (
            (np.ascontiguousarray(make()), type_)
            for make, type_ in (inputs[name] for name in self._inputs)
        )
        return [to_tensor(values, type_.dtype, type_.shape) for values, type_ in made]

    def own_memory(self, binding: Binding) -> dict[str, np.ndarray]:
        """Memory for each input that has none in the region, with its first values."""
        return {
            name: np.ascontiguousarray(make())
            for offset, (name, (make, _)) in zip(
                self._offsets(binding), self._inputs.items(), strict=True
            )
            if offset is None
        }

    def rotation(self, own: Mapping[str, np.ndarray], turns: Turns) -> Callable[[], None] | None:
        """What copies the next of ``turns`` to their ``own`` memory; None: nothing does."""
        pairs = {name: (memory, self._inputs[name][0]) for name, memory in own.items()}
        return self._rotation.of(pairs, turns)

    def _offsets(self, binding: Binding) -> list[int | None]:
        pairs = zip(binding.inputs, self._is_bound, strict=True)
        return [offset for offset, is_bound in pairs if is_bound]

    def bind(
        self,
        request: ov.InferRequest,
        binding: Binding,
        region: np.ndarray,
        own: Mapping[str, np.ndarray],
        *,
        inputs: int = 0,
        outputs: int = 0,
    ) -> list[Any]:
        """Bind ports of ``request``, counted from these numbers on; return objects to keep alive.

        They are bound to their ``own`` memory, or to ``region`` at the offsets of the binding.
        """
        compiled = request.get_compiled_model()
        keep: list[Any] = [region]
        for number, (offset, (name, (_, type_))) in enumerate(
            zip(self._offsets(binding), self._inputs.items(), strict=True), inputs
        ):
            memory = own[name] if offset is None else _at(region, offset, type_)
            shape = list(compiled.inputs[number].get_shape())
            tensor = to_tensor(memory, type_.dtype, shape)
            with translated("taking an input"):
                request.set_input_tensor(number, tensor)
            keep += (memory, tensor)
        for number, offset in enumerate(binding.outputs, outputs):
            port = compiled.outputs[number]
            if offset is None or port.get_partial_shape().is_dynamic:
                continue  # OpenVINO has memory for it
            kind, shape = port.get_element_type(), list(port.get_shape())
            # Where numpy lacks the type, this is one of the same size.
            dtype = np.dtype(kind.to_dtype())
            view = region[offset : offset + int(np.prod(shape)) * dtype.itemsize].view(dtype)
            with translated("taking an output"):
                tensor = ov.Tensor(view, ov.Shape(shape), kind)
                request.set_output_tensor(number, tensor)
            keep.append(tensor)
        return keep


class LoadedModel:
    """A compiled model with its weights, which must stay where they are."""

    def __init__(
        self, compiled: ov.CompiledModel, ports: Ports, weights: Mapping[str, np.ndarray]
    ) -> None:
        self._compiled, self._ports, self._weights = compiled, ports, weights

    def bind(self, binding: Binding, region: np.ndarray) -> BoundRequest:
        """Bind inputs and outputs; see :meth:`Ports.bind`."""
        request = self.request()
        own = self._ports.own_memory(binding)
        keep = [self._weights, self._ports.bind(request, binding, region, own)]
        return BoundRequest(
            request, keep, len(binding.outputs), lambda turns: self._ports.rotation(own, turns)
        )

    def request(self) -> ov.InferRequest:
        """A new request, with nothing bound."""
        with translated("preparing a run"):
            return self._compiled.create_infer_request()


class SizedRequest:
    """A request that takes inputs of several sizes, with those of one; it keeps ``keep`` alive."""

    def __init__(self, request: ov.InferRequest, inputs: Sequence[ov.Tensor], keep: object) -> None:
        self._request, self._inputs, self._keep = request, inputs, keep

    def sample(self) -> Sample:
        """Run once; the latency with what a change of shapes takes, some of it before the run."""
        clock = time.perf_counter_ns
        with translated("running it"):
            start = clock()
            for number, tensor in enumerate(self._inputs):
                self._request.set_input_tensor(number, tensor)
            self._request.infer(share_outputs=True)
            return Sample((clock() - start) * 1e-9)


class BoundRequest(RotatingInputs):
    """A request bound to memory, with so many ``outputs``; it keeps ``keep`` alive.

    ``rotation`` returns what writes the next of turns to their inputs.
    """

    def __init__(
        self,
        request: ov.InferRequest,
        keep: list[Any],
        outputs: int,
        rotation: Callable[[Turns], Callable[[], None] | None] = lambda turns: None,
    ) -> None:
        self._rotation = rotation
        # The public wrapper inspects inputs in each call, and copies outputs.
        wrapper: Any = super(type(request), request)
        self._infer = wrapper.infer
        self._request, self._keep, self._outputs = request, keep, outputs

    def sample(self) -> Sample:
        """Run once; its latency as OpenVINO measures it."""
        try:
            self._infer({}, share_outputs=True, decode_strings=False)
            return Sample(self._request.latency * 1e-3)
        except Exception:  # translated here: a context manager would add to the time between runs
            with translated("running it"):
                raise

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the memory of these inputs."""
        return self._rotation(turns)

    def counters(self) -> dict[str, float]:
        """Mean seconds over all runs, by name of the kernels."""
        seconds: dict[str, float] = {}
        with translated("reading its counters"):
            for info in self._request.profiling_info:
                name = info.node_name
                seconds[name] = seconds.get(name, 0.0) + info.real_time.total_seconds()
        return seconds

    def results(self) -> list[np.ndarray]:
        """Copies of the outputs of the last run."""
        with translated("reading its results"):
            return [_copy(tensor) for tensor in self._request.output_tensors[: self._outputs]]


def _copy(tensor: ov.Tensor) -> np.ndarray:
    values = np.array(tensor.data)
    is_bfloat16 = tensor.get_element_type() == _FOREIGN["BFLOAT16"]
    return values.view(numpy_dtype("BFLOAT16")) if is_bfloat16 else values


def _at(region: np.ndarray, offset: int, type_: TensorType) -> np.ndarray:
    return region[offset : offset + type_.size_bytes].view(numpy_dtype(type_.dtype))
