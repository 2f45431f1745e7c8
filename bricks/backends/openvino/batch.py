"""Many bricks in one compilation: as independent parts of one model.

OpenVINO chooses kernels and layouts of each part as if it were isolated, runs one part after the
other in the order in which they were put together, and compiling takes little longer for many parts
than for one. Must not know what the parts are for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import networkx as nx
import openvino as ov

from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import CompiledKernel, kernels
from bricks.errors import BackendError

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
