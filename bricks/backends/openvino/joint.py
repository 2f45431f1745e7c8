"""Steps that run in one call: the bricks of a walk as parts of one compiled model.

Inside a model, one call runs all kernels, each finds what the one before has left in the caches,
and threads are awake. Bricks that were compiled alone would each begin with a call, whose code and
data displace those of kernels, and with threads that have fallen asleep: small kernels would take
up to twice as long. So the bricks of a walk are compiled together, and OpenVINO's counters tell
what each takes.

Must not know why bricks run in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import openvino as ov

from bricks.backends.base import Binding
from bricks.backends.kernel_counters import CallOverhead, KernelCounters
from bricks.backends.openvino.batch import kernels_of_parts, side_by_side
from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import kernels
from bricks.backends.openvino.loaded import BoundRequest, Ends
from bricks.errors import BackendError
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class LoadedBrick:
    """A brick as OpenVINO's own graph, which is compiled where it runs.

    Its ``weights`` must stay where they are. ``around`` measures what runs around kernels.
    """

    model: ov.Model
    ends: Ends
    weights: Mapping[str, np.ndarray]
    compiler: Compiler
    around: Callable[[], CallOverhead]

    def bind(self, binding: Binding, region: np.ndarray) -> BoundBrick:
        """The brick at a place; it is compiled when it first runs."""
        return BoundBrick(self, binding, region)


@dataclass(slots=True)
class BoundBrick:
    """A brick and the memory of its inputs and outputs."""

    brick: LoadedBrick
    binding: Binding
    region: np.ndarray
    _alone: OpenvinoFusedRun | None = field(default=None, init=False)

    def sample(self) -> Sample:
        """Run it alone; what it took."""
        if self._alone is None:
            self._alone = OpenvinoFusedRun([self])
        return self._alone.sample()[0]

    def release(self) -> None:
        """Give up what it needs to run alone."""
        self._alone = None


class OpenvinoFusedRun:
    """Bricks that run one after the other in one call.

    Raises :class:`BackendError` where OpenVINO does not keep them apart and in order.
    """

    def __init__(self, bound: Sequence[BoundBrick]) -> None:
        first = bound[0].brick
        for each in bound:
            each.release()
        compiled = first.compiler.compile(
            side_by_side([each.brick.model.clone() for each in bound]), counted=True
        )
        found = kernels(compiled)
        parts = kernels_of_parts(found, len(bound))
        working = [part for part in parts if part]
        if any(a[-1].order > b[0].order for a, b in pairwise(working)):
            raise BackendError("OpenVINO does not run bricks in the order of their model")
        names = [[kernel.name for kernel in part] for part in parts]
        others = [kernel.name for kernel in found if kernel.added or kernel.at_end]
        with translated("preparing a run"):
            request = compiled.create_infer_request()
        keep: list[object] = []
        inputs = outputs = 0
        for each in bound:
            brick, binding = each.brick, each.binding
            keep.append((brick, each.region))
            keep.append(
                brick.ends.bind(request, binding, each.region, inputs=inputs, outputs=outputs)
            )
            inputs += brick.ends.inputs
            outputs += len(brick.model.outputs)
        self._bound = BoundRequest(request, keep, outputs)
        self._counters = KernelCounters(names, others, first.around(), self._bound.counters)

    def sample(self) -> list[Sample]:
        """Run all once; what each took, as if each were a call."""
        return [*map(Sample, self._counters.latencies_s(self._bound.sample().host_s))]
