"""Many bricks in one compilation: as parts of one model that have nothing to do with each other.

OpenVINO chooses kernels and layouts of each part as if it were alone, and compiling takes little
longer for many parts than for one. Must not know what the parts are compared with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import networkx as nx
import openvino as ov

from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import Kernel, kernels
from bricks.errors import BackendError

_PART = re.compile(r"part(\d+)\.")


def kernels_of_each(compiler: Compiler, models: Sequence[ov.Model]) -> list[list[Kernel]]:
    """The kernels that work of each of ``models``."""
    joined = [n for n, model in enumerate(models) if model.get_parameters()]
    try:
        together = _side_by_side(compiler, [(n, models[n]) for n in joined])
    except BackendError:  # one of them, which is then named
        together = {n: _working(kernels(compiler.compile(models[n]))) for n in joined}
    return [
        together[n] if n in together else _working(kernels(compiler.compile(model)))
        for n, model in enumerate(models)
    ]


def _working(found: Sequence[Kernel]) -> list[Kernel]:
    return [kernel for kernel in found if kernel.works]


def _side_by_side(
    compiler: Compiler, models: Sequence[tuple[int, ov.Model]]
) -> dict[int, list[Kernel]]:
    with translated("joining bricks"):
        parameters, results = [], []
        for n, model in models:
            for i, parameter in enumerate(model.get_parameters()):
                parameter.set_friendly_name(f"part{n}.{i}")
                parameters.append(parameter)
            results += model.get_results()
        together = ov.Model(results, parameters, "parts")
    found = kernels(compiler.compile(together))
    flow: nx.Graph[int] = nx.Graph()
    for number, kernel in enumerate(found):
        if not kernel.constant:
            flow.add_node(number)
            sources = (source for source, _ in kernel.sources if not found[source].constant)
            flow.add_edges_from((number, source) for source in sources)
    parts: dict[int, list[Kernel]] = {n: [] for n, _ in models}
    for members in nx.connected_components(flow):
        owners = {int(m[1]) for i in members if (m := _PART.match(found[i].name))}
        for owner in owners:
            parts[owner] += _working([found[i] for i in sorted(members)])
        if len(owners) != 1:
            raise BackendError("OpenVINO joins bricks that have nothing to do with each other")
    return parts
