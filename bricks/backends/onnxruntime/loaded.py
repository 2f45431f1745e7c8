"""Sessions with synthetic inputs, bound to memory before they run.

Must not know how sessions are created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.backends.base import Binding, RotatingInputs
from bricks.backends.onnxruntime.sessions import at, static_type
from bricks.backends.onnxruntime.values import to_value, translated
from bricks.backends.rotation import Own, Rotation, Turns
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.units.sample import Sample

if TYPE_CHECKING:
    import onnxruntime as ort

    from bricks.backends.onnxruntime.synthetic_data import Inputs

# The runtime's message about an output that is bound to memory of another shape.
_MISINFERRED = "but the computed output shape"


class LoadedSession:
    """A session that can be bound several times; it keeps the memory of its weights alive."""

    def __init__(
        self, session: ort.InferenceSession, weights: Mapping[str, np.ndarray], inputs: Inputs
    ) -> None:
        self.session = session
        self._weights, self._inputs = weights, inputs
        self._rotation = Rotation()
        self._own: dict[str, Any] = {}  # created on demand: most bindings need none

    def bind(self, binding: Binding, region: np.ndarray) -> BoundSession:
        """Bind every input and output before the runs, so that a run allocates nothing."""
        io_binding = self.session.io_binding()
        keep: list[object] = [self.session, io_binding, self._weights]
        own: dict[str, Any] = {}
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is not None:
                assert isinstance(type_, TensorType)  # only tensors are bound in the region
                buffer = at(region, offset, type_)
            else:
                if name not in self._own:
                    self._own[name] = make()
                buffer = self._own[name]
                own[name] = buffer, make
            value = to_value(buffer, type_)
            keep += (buffer, value)
            io_binding.bind_ortvalue_input(name, value)
        unbound = self._bind_outputs(io_binding, binding.outputs, region, keep)
        return BoundSession(self.session, io_binding, unbound, self._rotation, own, keep)

    def _bind_outputs(
        self,
        io_binding: ort.IOBinding,
        offsets: Sequence[int | None],
        region: np.ndarray,
        keep: list[object],
    ) -> list[str]:
        """Bind the outputs whose shapes are known; return the names of the others."""
        unbound = []
        for output, offset in zip(self.session.get_outputs(), offsets, strict=True):
            type_ = static_type(output)
            if type_ is None or ELEMENT_BITS[type_.dtype] < 8:
                unbound.append(output.name)  # the runtime allocates data-dependent outputs
                continue
            memory = np.zeros(type_.size_bytes, np.uint8) if offset is None else region
            buffer = at(memory, offset or 0, type_)
            value = to_value(buffer, type_)
            keep += (buffer, value)
            io_binding.bind_ortvalue_output(output.name, value)
        return unbound


class BoundSession(RotatingInputs):
    """A session bound to its memory, except outputs ``unbound`` until their shapes are known.

    Inputs in ``own`` have buffers of their own, in which values of ``rotation`` take turns.
    ``keep`` is kept alive.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        unbound: Sequence[str],
        rotation: Rotation,
        own: Own,
        keep: list[object],
    ) -> None:
        # The public wrapper adds Python calls to each run: microseconds that would count towards
        # the latency of a small brick.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding
        self._bind_output = binding.bind_output
        self._unbound = unbound
        self._outputs = [output.name for output in session.get_outputs()]
        self._rotation, self._own, self._keep = rotation, own, keep

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the buffers of these inputs."""
        return self._rotation.of(self._own, turns)

    def sample(self) -> Sample:
        """Run once, and return the latency."""
        for name in self._unbound:  # the last run's buffer may have another shape
            self._bind_output(name)
        run, binding, clock = self._run, self._binding, time.perf_counter_ns
        try:
            start = clock()
            run(binding, None)
            return Sample((clock() - start) * 1e-9)
        except Exception as exc:  # translated here: a context manager would add to the latency
            if _MISINFERRED in str(exc) and len(self._unbound) < len(self._outputs):
                # The runtime makes a shape that it did not infer: it allocates from now on.
                self._binding.clear_binding_outputs()
                self._unbound = self._outputs
                return self.sample()
            with translated("running it"):
                raise
