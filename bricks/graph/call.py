"""A call of an operator in a recorded program, and the names of phases and kinds of programs.

Plain data; see ``graph.program``. A call also evicts a share of a core's caches, by the bytes that
it touches. Must import neither PyTorch nor, until a node is made, ONNX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.graph.form import DOMAIN

if TYPE_CHECKING:
    import onnx

# JSON of an undefined tensor, which C++ code can create and Python cannot.
UNDEFINED: Mapping[str, Any] = {"undefined": True}
# The attribute of calls that run on the host of a GPU.
ON_HOST = "host"


@dataclass(frozen=True, slots=True)
class Port:
    """View of a storage by one input of a call; ``offset`` and ``strides`` are in elements.

    ``storage`` numbers the storages of the call. Offsets are relative to its first tensor there.
    """

    storage: int
    offset: int
    strides: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """``[storage, offset, strides]``."""
        return [self.storage, self.offset, list(self.strides)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Port:
        """Read the list of :meth:`to_json`."""
        storage, offset, strides = data
        return cls(storage, offset, tuple(strides))


@dataclass(frozen=True, slots=True)
class Call:
    """Call of ``operator`` (``add_.Tensor``) in ``namespace`` (``aten``).

    ``arguments`` are positional and named ones, as in the module's docstring. ``ports`` is empty if
    every tensor is contiguous and has a storage of its own; ``aliases`` if no output shares a
    storage with an input; ``zeros`` unless an earlier version recorded the call. A call ``on_host``
    starts no kernel on the GPU of its program.
    """

    namespace: str
    operator: str
    arguments: tuple[list[Any], dict[str, Any]]
    ports: tuple[Port, ...] = ()
    aliases: tuple[int, ...] = ()
    zeros: tuple[int, ...] = ()
    on_host: bool = False

    def node(self, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
        """Return the node of this call, with the names of its ``inputs`` and ``outputs``."""
        from onnx import helper  # slow import, and not everywhere

        node = helper.make_node(
            self.operator, inputs, outputs, domain=DOMAIN + self.namespace,
            call=json.dumps(self.arguments, separators=(",", ":")),
        )  # fmt: skip
        if self.ports:
            layout = json.dumps([port.to_json() for port in self.ports], separators=(",", ":"))
            node.attribute.append(helper.make_attribute("layout", layout))
        if self.aliases:
            node.attribute.append(helper.make_attribute("aliases", list(self.aliases)))
        if self.on_host:
            node.attribute.append(helper.make_attribute(ON_HOST, 1))
        return node


def leaves(arguments: Any) -> Iterator[Any]:
    """Yield the values in nested lists and dicts of a call's arguments, in order.

    Dicts of one entry, such as ``{"t": k}``, are values.
    """
    if isinstance(arguments, list | tuple):
        for argument in arguments:
            yield from leaves(argument)
    elif isinstance(arguments, dict) and not len(arguments) == 1:
        for argument in arguments.values():
            yield from leaves(argument)
    else:
        yield arguments


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous tensor of ``shape``."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

INFERENCE, TRAINING = "inference", "training step"

# Roles of tensors that exist before a step.
INPUTS, PARAMETERS, BUFFERS = "inputs", "parameters", "buffers"

# Parts of call overhead: once in a phase, for each call, and for code evicted from the caches.
PER_PHASE, PER_CALL, EVICTION = "once", "each", "displaced"


# Calls that touch fewer bytes than the first evict nothing, more than the second everything; the
# share is linear in the logarithm between (training steps of perceptrons 8 to 1024 wide).
_FEWEST_BYTES, ALL_BYTES = 16 << 10, 1 << 20


def evicted_share(touched: int) -> float:
    """Return the share of the caches, 0 to 1, that a call evicts by touching ``touched`` bytes."""
    if touched <= _FEWEST_BYTES:
        return 0.0
    return min(1.0, math.log(touched / _FEWEST_BYTES) / math.log(ALL_BYTES / _FEWEST_BYTES))


def writes(operator: str) -> bool:
    """Whether an operator writes to an argument, by PyTorch's naming conventions."""
    name, _, overload = operator.partition(".")
    return name.endswith("_") or "out" in overload.split("_")
