"""Many bricks as independent parts of one model: compiled together, or run in one call.

OpenVINO chooses kernels and layouts of each part as if it were isolated, runs one part after the
other in the order in which they were put together, and compiling takes little longer for many parts
than for one.

Inside a model, one call runs all kernels, each finds in the caches what the kernel before has left
there, and threads are awake. Bricks compiled in isolation would each begin with a call, whose code
and data evict those of kernels, and with idle threads: small kernels would take up to twice as
long. So the bricks of a walk are compiled together, and OpenVINO's counters divide the latency.

Must not know why bricks run in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import networkx as nx
import numpy as np
import openvino as ov

from bricks.backends.base import Binding, RotatingInputs
from bricks.backends.input_values import Turns
from bricks.backends.kernel_counters import CallOverhead, KernelCounters
from bricks.backends.openvino.compiled import BoundRequest, Compiler, Ports, translated
from bricks.backends.openvino.execution import CompiledKernel, kernels
from bricks.errors import BackendError
from bricks.units.sample import Sample

# Names of nodes end with the number of their part.
_PART = re.compile(r"@(\d+)(?:\D|$)")


def kernels_of_each(compiler: Compiler, models: Sequence[ov.Model]) -> list[list[CompiledKernel]]:
    """The computing kernels of each of ``models``, which cannot be used afterwards."""
    fed = [n for n, model in enumerate(models) if model.get_parameters()]
    try:
        copies = [models[n].clone() for n in fed]
        compiled = kernels(compiler.compile(side_by_side(copies)))
        together = dict(zip(fed, kernels_of_parts(compiled, len(fed)), strict=True))
    except BackendError:  # of one model, which fails again below
        together = {}
    return [
        together[n] if n in together else _computing(kernels(compiler.compile(model)))
        for n, model in enumerate(models)
    ]


def side_by_side(models: Sequence[ov.Model]) -> ov.Model:
    """One model of all ``models``, whose inputs and outputs are theirs in order.

    They cannot be used afterwards. Names of nodes end with the number of the model.
    """
    with translated("joining bricks"):
        parameters, results = [], []
        for n, model in enumerate(models):
            for op in model.get_ops():
                op.set_friendly_name(f"{op.get_friendly_name()}@{n}")
            parameters += model.get_parameters()
            results += model.get_results()
        return ov.Model(results, parameters, "parts")


def kernels_of_parts(compiled: Sequence[CompiledKernel], parts: int) -> list[list[CompiledKernel]]:
    """The computing kernels of each of so many ``parts`` of a model, in execution order.

    Raises :class:`BackendError` where a kernel belongs to several parts.
    """
    flow: nx.Graph[int] = nx.Graph()
    for number, kernel in enumerate(compiled):
        if not kernel.constant:
            flow.add_node(number)
            sources = (source for source, _ in kernel.sources if not compiled[source].constant)
            flow.add_edges_from((number, source) for source in sources)
    of_parts: list[list[CompiledKernel]] = [[] for _ in range(parts)]
    for members in nx.connected_components(flow):
        owners = {int(m[1]) for i in members if (m := _PART.search(compiled[i].name))}
        if len(owners) != 1:
            raise BackendError("OpenVINO joins bricks that have nothing to do with each other")
        of_parts[owners.pop()] += _computing([compiled[i] for i in members])
    for part in of_parts:
        part.sort(key=lambda kernel: kernel.order)
    return of_parts


def _computing(compiled: Sequence[CompiledKernel]) -> list[CompiledKernel]:
    return [kernel for kernel in compiled if kernel.computes]


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
        self._request = BoundRequest(request, keep, outputs)
        names = [[kernel.name for kernel in part] for part in parts]
        others = [k.name for k in compiled_kernels if k.is_adapter or k.at_boundary]
        self._counters = KernelCounters(names, others, first.overhead(), self._request.counters)

    def sample(self) -> list[Sample]:
        """Run all once; the latency of each, as if it ran in a call of its own."""
        return [*map(Sample, self._counters.latencies_s(self._request.sample().host_s))]
