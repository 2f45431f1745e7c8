"""The bricks of a walk as parts of one compiled model, which run in one call.

Inside a model, one call runs all kernels, each finds in the caches what the kernel before has left
there, and threads are awake. Bricks compiled in isolation would each begin with a call, whose code
and data evict those of kernels, and with idle threads: small kernels would take up to twice as
long. So the bricks of a walk are compiled together, and OpenVINO's counters divide the latency.

Must not know why bricks run in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from bricks.backends.base import RotatingInputs
from bricks.backends.kernel_counters import CallOverhead, KernelCounters
from bricks.backends.openvino.batch import kernels_of_parts, side_by_side
from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import kernels
from bricks.backends.openvino.loaded import BoundRequest, Ports
from bricks.errors import BackendError
from bricks.units.sample import Sample

if TYPE_CHECKING:
    import numpy as np
    import openvino as ov

    from bricks.backends.base import Binding
    from bricks.backends.rotation import Turns


@dataclass(frozen=True, slots=True)
class LoadedBrick:
    """A brick as OpenVINO's own graph, which is compiled where it runs.

    Its ``weights`` must stay where they are. ``overhead`` measures the call overhead.
    """

    model: ov.Model
    ports: Ports
    weights: Mapping[str, np.ndarray]
    compiler: Compiler
    overhead: Callable[[], CallOverhead]

    def bind(self, binding: Binding, region: np.ndarray) -> BoundBrick:
        """The brick bound to memory; it is compiled when it first runs."""
        return BoundBrick(self, binding, region, self.ports.own_memory(binding))


@dataclass(slots=True)
class BoundBrick(RotatingInputs):
    """A brick, and the memory of its inputs and outputs: in the ``region``, or its ``own``."""

    brick: LoadedBrick
    binding: Binding
    region: np.ndarray
    own: Mapping[str, np.ndarray]
    _isolated: OpenvinoFusedRun | None = field(default=None, init=False)

    def sample(self) -> Sample:
        """Run the brick in a call of its own."""
        if self._isolated is None:
            self._isolated = OpenvinoFusedRun([self])
        return self._isolated.sample()[0]

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the memory of these inputs."""
        return self.brick.ports.rotation(self.own, turns)

    def release(self) -> None:
        """Release the compiled model of the brick in isolation."""
        self._isolated = None


class OpenvinoFusedRun:
    """Bricks that run one after the other in one call.

    Raises :class:`BackendError` if OpenVINO merges or reorders their kernels.
    """

    def __init__(self, bricks: Sequence[BoundBrick]) -> None:
        first = bricks[0].brick
        for bound in bricks:
            bound.release()
        models = [bound.brick.model.clone() for bound in bricks]
        compiled = first.compiler.compile(side_by_side(models), counted=True)
        compiled_kernels = kernels(compiled)
        parts = kernels_of_parts(compiled_kernels, len(bricks))
        computing = [part for part in parts if part]
        if any(a[-1].order > b[0].order for a, b in pairwise(computing)):
            raise BackendError("OpenVINO does not run bricks in the order of their model")
        self._request = _bound(compiled, bricks)
        names = [[kernel.name for kernel in part] for part in parts]
        others = [k.name for k in compiled_kernels if k.is_adapter or k.at_boundary]
        self._counters = KernelCounters(names, others, first.overhead(), self._request.counters)

    def sample(self) -> list[Sample]:
        """Run all once; the latency of each, as if it ran in a call of its own."""
        return [*map(Sample, self._counters.latencies_s(self._request.sample().host_s))]


def _bound(compiled: ov.CompiledModel, bricks: Sequence[BoundBrick]) -> BoundRequest:
    """A request of the model of all ``bricks``, whose ports are bound as theirs are."""
    with translated("preparing a run"):
        request = compiled.create_infer_request()
    keep: list[object] = []
    inputs = outputs = 0
    for bound in bricks:
        ports = bound.brick.ports
        keep.append((bound.brick, bound.region))
        keep.append(
            ports.bind(
                request, bound.binding, bound.region, bound.own, inputs=inputs, outputs=outputs
            )
        )
        inputs += ports.inputs
        outputs += len(bound.brick.model.outputs)
    return BoundRequest(request, keep, outputs)
