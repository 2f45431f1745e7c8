"""A translated graph with its weights, bound to memory and ready to run.

It runs as a cached operator with static memory, like a hybridised Gluon network. oneDNN writes
results to their arrays in a layout of its own, and later reads them in this layout. So values that
share memory in the region must share the array object too, which records the layout. Must not know
how operators are translated.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call

from bricks.backends.base import RotatingInputs
from bricks.backends.mxnet.translate import Translation, translated
from bricks.backends.rotation import Own, Rotation, Turns
from bricks.graph.synthesis import numpy_dtype
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.base import Binding
    from bricks.backends.tensor_runtime import TensorInputs
    from bricks.graph.tensor import TensorType

# The flags of Gluon's hybridize(static_alloc=True, static_shape=True).
_STATIC = [("static_alloc", "True"), ("static_shape", "True")]


def to_array(values: np.ndarray) -> Any:
    """An MXNet array that shares the memory of ``values``; MXNet has no scalars."""
    shaped = values.reshape(values.shape or (1,))
    with translated(f"taking values of type {values.dtype}"):
        return mx.nd.from_numpy(np.ascontiguousarray(shaped), zero_copy=True)


class ArrayRegion:
    """The arrays in the shared activation region: one per offset and type."""

    def __init__(self) -> None:
        self._memory: np.ndarray | None = None
        self._arrays: dict[tuple[int, TensorType], Any] = {}

    def at(self, memory: np.ndarray, offset: int, type_: TensorType) -> Any:
        """The array of ``type_`` at ``offset`` bytes in ``memory``, always the same one."""
        if self._memory is None or self._memory.ctypes.data != memory.ctypes.data:
            self._memory, self._arrays = memory, {}
        key = offset, type_
        if key not in self._arrays:
            flat = memory[offset : offset + type_.size_bytes]
            shaped = flat.view(numpy_dtype(type_.dtype)).reshape(type_.shape)
            self._arrays[key] = to_array(shaped)
        return self._arrays[key]


class LoadedGraph:
    """A graph with its weights, which stay the same however often it is bound.

    ``symbol`` is the symbol that runs: the translation's, or the one after fusion.
    """

    def __init__(
        self,
        symbol: Any,
        translation: Translation,
        weights: Mapping[str, np.ndarray],
        inputs: TensorInputs,
        outputs: Sequence[TensorType],
        region: ArrayRegion,
    ) -> None:
        self._symbol = symbol
        self._inputs, self._outputs, self._region = inputs, outputs, region
        self._order, self._rotation = symbol.list_inputs(), Rotation()
        needed = set(self._order)
        # oneDNN converts the layout of weights in place, and copies of a model share these bytes.
        constants = {name: values.copy() for name, values in translation.constants.items()}
        self._variables = translation.variables
        self._weights = {
            translation.variables[name]: to_array(values)
            for name, values in {**constants, **weights}.items()
            if translation.variables[name] in needed
        }

    def bind(self, binding: Binding, region: np.ndarray) -> BoundGraph:
        """Bind inputs and outputs, to arrays in ``region`` where the binding says so."""
        arrays, own = dict(self._weights), {}
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is None:
                memory = np.ascontiguousarray(make())
                own[name] = memory, make
                arrays[self._variables[name]] = to_array(memory)
            else:
                arrays[self._variables[name]] = self._region.at(region, offset, type_)
        results = [
            to_array(np.zeros(type_.shape, numpy_dtype(type_.dtype)))
            if offset is None
            else self._region.at(region, offset, type_)
            for offset, type_ in zip(binding.outputs, self._outputs, strict=True)
        ]
        arguments = [arrays[name] for name in self._order]
        return BoundGraph(self._symbol, arguments, results, self._rotation, own)


class BoundGraph(RotatingInputs):
    """A cached operator with the arrays that it reads and writes.

    Inputs in ``own`` have buffers of their own, in which values of ``rotation`` take turns.
    """

    def __init__(
        self,
        symbol: Any,
        arguments: Sequence[Any],
        results: Sequence[Any],
        rotation: Rotation,
        own: Own,
    ) -> None:
        self._rotation, self._own = rotation, own
        with translated("binding it"):
            self._operator = mx.nd.CachedOp(symbol, _STATIC)
        self._arguments, self._results = arguments, results
        # The public wrapper recreates these on each call, which takes microseconds per weight.
        self._handles = (NDArrayHandle * len(arguments))(*(a.handle for a in arguments))
        self._result_handles = (NDArrayHandle * len(results))(*(a.handle for a in results))

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the buffers of these inputs."""
        return self._rotation.of(self._own, turns)

    def sample(self) -> Sample:
        """Run once, and return the latency."""
        count = ctypes.c_int(len(self._results))
        results = ctypes.cast(self._result_handles, ctypes.POINTER(NDArrayHandle))
        kinds = ctypes.POINTER(ctypes.c_int)()
        invoke, operator, clock = (
            _LIB.MXInvokeCachedOpEx,
            self._operator.handle,
            time.perf_counter_ns,
        )
        arguments, number = self._handles, ctypes.c_int(len(self._arguments))
        by_count, by_results, by_kinds = map(ctypes.byref, (count, results, kinds))
        start = clock()
        failed = invoke(operator, number, arguments, by_count, by_results, by_kinds)
        latency_ns = clock() - start
        if failed:
            with translated("running it"):
                check_call(failed)
        return Sample(latency_ns * 1e-9)

    def results(self) -> list[np.ndarray]:
        """The outputs of the last run."""
        with translated("running it"):
            return [array.asnumpy() for array in self._results]
