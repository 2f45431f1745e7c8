"""A compiled model, bound to memory and ready to run.

Inputs and outputs are views of the memory that they are bound in, so that a run copies nothing. A
request of OpenVINO's times itself, so what Python takes around a run does not count. Must not know
how a model was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov

from bricks.backends.base import Binding
from bricks.backends.openvino.compiling import translated
from bricks.graph.payload import numpy_dtype
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.units.sample import Sample

# Element types that numpy lacks.
_FOREIGN = {"BFLOAT16": ov.Type.bf16, "FLOAT8E4M3FN": ov.Type.f8e4m3, "FLOAT8E5M2": ov.Type.f8e5m2}


def to_tensor(values: np.ndarray, dtype: str, shape: Sequence[int]) -> ov.Tensor:
    """A tensor of this type and shape over the memory of ``values``."""
    with translated(f"taking values of type {dtype.lower()}"):
        if dtype in _FOREIGN or ELEMENT_BITS[dtype] < 8:
            kind = _FOREIGN.get(dtype) or getattr(ov.Type, _short(dtype))
            return ov.Tensor(values, ov.Shape(list(shape)), kind)
        return ov.Tensor(values.reshape(tuple(shape)), shared_memory=True)


def _short(dtype: str) -> str:
    return dtype.lower().replace("uint", "u").replace("int", "i")


class Ends:
    """The inputs and outputs of a model: what makes the values of inputs, and what they are.

    ``inputs`` are all inputs in order, with what makes their values; those that the compiled model
    has as constants are in ``fixed``.
    """

    def __init__(
        self, inputs: Mapping[str, tuple[Callable[[], Any], TensorType]], fixed: Mapping[str, Any]
    ) -> None:
        self._inputs, self._fixed = inputs, fixed

    @property
    def inputs(self) -> int:
        """How many inputs the compiled model has."""
        return len(self._inputs) - len(self._fixed)

    def bind(
        self,
        request: ov.InferRequest,
        binding: Binding,
        region: np.ndarray,
        *,
        inputs: int = 0,
        outputs: int = 0,
    ) -> list[Any]:
        """Bind the inputs and outputs of ``request``, from these numbers on; what must be kept.

        They are in memory of their own, or in ``region`` where the binding says so.
        """
        compiled = request.get_compiled_model()
        keep: list[Any] = [region]
        number = inputs
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if name in self._fixed:
                continue
            memory = np.ascontiguousarray(make()) if offset is None else _at(region, offset, type_)
            shape = list(compiled.inputs[number].get_shape())
            tensor = to_tensor(memory, type_.dtype, shape)
            with translated("taking an input"):
                request.set_input_tensor(number, tensor)
            keep += (memory, tensor)
            number += 1
        for number, offset in enumerate(binding.outputs, outputs):
            port = compiled.outputs[number]
            if offset is None or port.get_partial_shape().is_dynamic:
                continue  # OpenVINO has memory for it
            kind, shape = port.get_element_type(), list(port.get_shape())
            # Of types that numpy lacks, this is one as large.
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
        self, compiled: ov.CompiledModel, ends: Ends, weights: Mapping[str, np.ndarray]
    ) -> None:
        self.compiled, self._ends, self._weights = compiled, ends, weights

    def bind(self, binding: Binding, region: np.ndarray) -> BoundRequest:
        """Bind inputs and outputs; see :meth:`Ends.bind`."""
        with translated("preparing a run"):
            request = self.compiled.create_infer_request()
        keep = [self._weights, self._ends.bind(request, binding, region)]
        return BoundRequest(request, keep, len(binding.outputs))


class BoundRequest:
    """A request that is bound to its memory, and so many of its ``outputs``."""

    def __init__(self, request: ov.InferRequest, keep: list[Any], outputs: int) -> None:
        # The public wrapper looks at inputs anew in each call, and copies outputs.
        wrapper: Any = super(type(request), request)
        self._infer = wrapper.infer
        self._request, self._keep, self._outputs = request, keep, outputs

    def sample(self) -> Sample:
        """Run once; what it took."""
        try:
            self._infer({}, share_outputs=True, decode_strings=False)
            return Sample(self._request.latency * 1e-3)
        except Exception:  # translated here: a context manager would add to what runs between
            with translated("running it"):
                raise

    def counters(self) -> dict[str, float]:
        """The seconds of the kernels of each name, on the average of all runs."""
        found: dict[str, float] = {}
        with translated("reading its counters"):
            for info in self._request.profiling_info:
                seconds = info.real_time.total_seconds()
                found[info.node_name] = found.get(info.node_name, 0.0) + seconds
        return found

    def results(self) -> list[np.ndarray]:
        """Copies of the outputs of the last run."""
        with translated("reading its results"):
            tensors = self._request.output_tensors[: self._outputs]
            return [_copy(tensor) for tensor in tensors]


def _copy(tensor: ov.Tensor) -> np.ndarray:
    found = np.array(tensor.data)
    is_foreign = tensor.get_element_type() == _FOREIGN["BFLOAT16"]
    return found.view(numpy_dtype("BFLOAT16")) if is_foreign else found


def _at(region: np.ndarray, offset: int, type_: TensorType) -> np.ndarray:
    return region[offset : offset + type_.size_bytes].view(numpy_dtype(type_.dtype))
