"""Many bricks in one compilation: as parts of one model that have nothing to do with each other.

OpenVINO chooses kernels and layouts of each part as if it were alone, runs one part after the other
in the order in which they were put together, and compiling takes little longer for many parts than
for one. Must not know what the parts are for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import networkx as nx
import openvino as ov

from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import Kernel, kernels
from bricks.errors import BackendError

# What names have at their end: the number of the part.
_PART = re.compile(r"@(\d+)(?:\D|$)")


def kernels_of_each(compiler: Compiler, models: Sequence[ov.Model]) -> list[list[Kernel]]:
    """The kernels that work of each of ``models``, which are used up."""
    joined = [n for n, model in enumerate(models) if model.get_parameters()]
    try:
        copies = [models[n].clone() for n in joined]
        found = kernels(compiler.compile(side_by_side(copies)))
        together = dict(zip(joined, kernels_of_parts(found, len(joined)), strict=True))
    except BackendError:  # one of them, which is then named
        together = {}
    return [
        together[n] if n in together else _working(kernels(compiler.compile(model)))
        for n, model in enumerate(models)
    ]


def side_by_side(models: Sequence[ov.Model]) -> ov.Model:
    """One model of all ``models``, whose inputs and outputs are those of each in order.

    They are used up. Names of nodes end with the number of the model.
    """
    with translated("joining bricks"):
        parameters, results = [], []
        for n, model in enumerate(models):
            for op in model.get_ops():
                op.set_friendly_name(f"{op.get_friendly_name()}@{n}")
            parameters += model.get_parameters()
            results += model.get_results()
        return ov.Model(results, parameters, "parts")


def kernels_of_parts(found: Sequence[Kernel], parts: int) -> list[list[Kernel]]:
    """Of the kernels of a model of so many ``parts``, those that work of each, in order.

    Raises :class:`BackendError` where parts are not apart.
    """
    flow: nx.Graph[int] = nx.Graph()
    for number, kernel in enumerate(found):
        if not kernel.constant:
            flow.add_node(number)
            sources = (source for source, _ in kernel.sources if not found[source].constant)
            flow.add_edges_from((number, source) for source in sources)
    of_parts: list[list[Kernel]] = [[] for _ in range(parts)]
    for members in nx.connected_components(flow):
        owners = {int(m[1]) for i in members if (m := _PART.search(found[i].name))}
        if len(owners) != 1:
            raise BackendError("OpenVINO joins bricks that have nothing to do with each other")
        of_parts[owners.pop()] += _working([found[i] for i in members])
    for part in of_parts:
        part.sort(key=lambda kernel: kernel.order)
    return of_parts


def _working(found: Sequence[Kernel]) -> list[Kernel]:
    return [kernel for kernel in found if kernel.works]
