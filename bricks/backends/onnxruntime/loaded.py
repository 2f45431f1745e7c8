"""Sessions with synthetic inputs, bound to memory before they run.

Must not know how sessions are created.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.backends.base import Binding, RedrawableInputs
from bricks.backends.branch_prediction import sets_in_turn
from bricks.backends.onnxruntime.sessions import at, static_type
from bricks.backends.onnxruntime.values import to_value, translated
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.units.sample import Sample

if TYPE_CHECKING:
    import onnxruntime as ort

    from bricks.backends.onnxruntime.synthetic_data import Inputs
    from bricks.graph.sketch import Sketch

# The runtime's message about an output that is bound to memory of another shape.
_MISINFERRED = "but the computed output shape"


class LoadedSession:
    """A session that can be bound several times; it keeps the memory of its weights alive.

    Inputs called ``fixed`` have values that are not random. Those in ``sketches`` are drawn again
    from their sketch, all others uniformly.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        weights: Mapping[str, np.ndarray],
        inputs: Inputs,
        fixed: Collection[str] = (),
        sketches: Mapping[str, Sketch] | None = None,
    ) -> None:
        self.session = session
        self._weights, self._inputs = weights, inputs
        self._fixed, self._sketches = frozenset(fixed), sketches or {}
        self._own: dict[str, Any] = {}  # created on demand: most bindings need none

    def bind(self, binding: Binding, region: np.ndarray) -> BoundSession:
        """Bind every input and output before the runs, so that a run allocates nothing."""
        io_binding = self.session.io_binding()
        keep: list[object] = [self.session, io_binding, self._weights]
        random: list[tuple[np.ndarray, Sketch | None]] = []
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is not None:
                assert isinstance(type_, TensorType)  # only tensors are bound in the region
                buffer = at(region, offset, type_)
            else:
                if name not in self._own:
                    self._own[name] = make()
                buffer, sketch = self._own[name], self._sketches.get(name)
                if name not in self._fixed and (sketch or type_.dtype == "FLOAT"):
                    random.append((buffer, sketch))
            value = to_value(buffer, type_)
            keep += (buffer, value)
            io_binding.bind_ortvalue_input(name, value)
        unbound = self._bind_outputs(io_binding, binding.outputs, region, keep)
        return BoundSession(self.session, io_binding, unbound, random, keep)

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


class BoundSession(RedrawableInputs):
    """A session bound to its memory, except outputs ``unbound`` until their shapes are known.

    ``random`` inputs are redrawn: from their sketch, or uniformly. ``keep`` is kept alive.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        unbound: Sequence[str],
        random: Sequence[tuple[np.ndarray, Sketch | None]],
        keep: list[object],
    ) -> None:
        # The public wrapper adds Python calls to each run: microseconds that would count towards
        # the latency of a small brick.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding
        self._bind_output = binding.bind_output
        self._unbound = unbound
        self._outputs = [output.name for output in session.get_outputs()]
        self._uniform = [buffer for buffer, sketch in random if sketch is None]
        self._sketched = [_in_turn(buffer, sketch) for buffer, sketch in random if sketch]
        self._random = np.random.default_rng(len(random))
        self._keep = keep

    def redraw(self) -> None:
        """Redraw the random inputs from the same distributions."""
        for buffer, turns in self._sketched:
            buffer[...] = next(turns)
        for buffer in self._uniform:
            self._random.random(dtype=np.float32, out=buffer)
            buffer *= 2
            buffer -= 1

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


def _in_turn(buffer: np.ndarray, sketch: Sketch) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """``buffer``, and sets of values of its sketch, which take turns.

    Drawing takes longer than running some operators, so sets are drawn once.
    """
    sets = range(sets_in_turn(buffer.size))
    return buffer, cycle([sketch.drawn(buffer, seed) for seed in sets])
