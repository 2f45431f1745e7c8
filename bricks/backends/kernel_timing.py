"""A capability of backends whose runs start kernels on a device: the times of these kernels.

Used inside the worker process; see :mod:`bricks.backends.base`. Must not know any runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import onnx
from onnx import TensorProto, helper

from bricks.backends.base import Capability
from bricks.system.accelerator import AcceleratorState
from bricks.units.sample import Kernel, Sample

# The domain of models that stand for a cost of launching.
_DOMAIN = "org.bricks.launch"


def launch_probe(name: str) -> onnx.ModelProto:
    """Return a model that stands for a cost of launching: see ``samples/call_overhead``.

    A :class:`KernelTimer` loads it; ``host_s`` of its samples is the cost in seconds.
    """
    node = helper.make_node("Launch", [], ["out"], domain=_DOMAIN, cost=name)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "probe", [], [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(_DOMAIN, 1)])


def launch_cost(proto: onnx.ModelProto) -> str | None:
    """Return the name of the cost that a model stands for; None for other models."""
    nodes: Sequence[onnx.NodeProto] = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != _DOMAIN:
        return None
    return str(nodes[0].attribute[0].s.decode())


class KernelTimer(Capability):
    """An optional interface of a backend whose models run on a device next to the host.

    It loads the models of :func:`launch_probe` too.

    A sample of a bound model then ends when its kernels are launched; that of a whole model when
    the device has ended.
    """

    lacking: ClassVar[str] = "{name} starts no kernels on a device: choose --device cuda"

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until the device has no work left."""

    @abstractmethod
    def displace(self, size_bytes: int) -> None:
        """Let the device touch ``size_bytes`` of memory that no model uses."""

    def device_state(self) -> AcceleratorState | None:
        """Return the state of the device now; None if it is unknown."""
        return None

    @abstractmethod
    def kernels(self, runs: Sequence[Callable[[], Sample]]) -> Sequence[tuple[Kernel, ...]]:
        """Make all ``runs`` in order; return the kernels that each started, in order.

        Of a run that samples a model several times, the kernels of the last sample count. Watching
        kernels slows the host, so the samples' times on the host are of no use.
        """
