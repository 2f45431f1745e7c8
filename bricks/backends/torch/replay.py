"""Calls of a recorded program, made again one by one on tensors of their own or of each other.

A call allocates its results itself, as it does in the program. So what calls hand to each other are
tensors, kept in numbered slots; a walk says when a slot is emptied. Must not know how synthetic
values are chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import cycle
from typing import Any

import onnx
import torch

from bricks.backends.base import Binding, RedrawableInputs
from bricks.backends.branch_prediction import sets_in_turn
from bricks.backends.torch.generator_states import GENERATOR, OPERATORS
from bricks.backends.torch.recomputation import HIDE, RECOMPUTATION, RECOMPUTE, Recomputation
from bricks.backends.torch.values import drawn, elements_of
from bricks.errors import BackendError, first_line
from bricks.graph.program import TORCH_DTYPES, Call, Port, call_of
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.units.sample import Sample

# The namespace of kernels that PyTorch's compiler makes.
KERNEL = "kernel"

# The tensors that calls hand to each other, by slot.
Slots = dict[int, torch.Tensor]

# What is replayed may come from another host: nothing that reads files, and no libraries.
_NAMESPACES = frozenset({"aten", "prims", "mkldnn", "inductor"})

# Layers that are computed again make fewer calls; a program from elsewhere could name any number.
_MOST_RECOMPUTED = 1 << 16

_NAMED: Mapping[str, Callable[[Any], Any]] = {
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
    "layout": lambda name: getattr(torch, name),
    "format": lambda name: getattr(torch, name),
    "float": float,
    "complex": lambda parts: complex(*parts),
    "undefined": lambda held: torch.empty(0),
}


class ReplayedCall:
    """A node of a program, ready to be called with tensors by name."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.call = call = call_of(node)
        self.operator = _operator(call)
        self.inputs, self.outputs = tuple(node.input), tuple(node.output)
        self._takes_numbers = _takes_numbers(call)

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments, with the tensors and numbers of ``values``."""
        tensors = [values[name] for name in self.inputs]
        numbers = tensors.pop().tolist() if self._takes_numbers else []
        positional, named = self.call.arguments
        return (
            [_value(each, tensors, numbers) for each in positional],
            {name: _value(each, tensors, numbers) for name, each in named.items()},
        )

    def results(self, result: Any, values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The outputs by name: what the call returned, then what it wrote to."""
        returned = list(tensors_in(result))
        named = {}
        for number, name in enumerate(self.outputs):
            if not name:
                continue
            if number < len(returned):
                named[name] = returned[number]
            else:
                named[name] = values[self.inputs[self.call.aliases[number]]]
        return named


def _takes_numbers(call: Call) -> bool:
    def some(value: Any) -> bool:
        if isinstance(value, list):
            return any(map(some, value))
        return isinstance(value, dict) and "s" in value

    positional, named = call.arguments
    return some(positional) or any(map(some, named.values()))


def _operator(call: Call) -> Any:
    if call.namespace == KERNEL:
        from bricks.backends.torch.kernels import kept_kernel  # the compiler takes long to import

        return _Kernel(kept_kernel(str(call.arguments[1].get("key"))))
    if call.namespace == GENERATOR and call.operator in OPERATORS:
        return OPERATORS[call.operator]
    if call.namespace == RECOMPUTATION and call.operator in (HIDE, RECOMPUTE):
        return _recomputation(call)
    name, _, overload = call.operator.partition(".")
    if call.namespace not in _NAMESPACES:
        raise _foreign(call.namespace, name)
    try:
        packet = getattr(getattr(torch.ops, call.namespace), name)
        found = getattr(packet, overload or "default")
    except (AttributeError, RuntimeError) as exc:
        raise BackendError(
            f"PyTorch {torch.__version__} has no operator {call.namespace}::{call.operator}:"
            f" {first_line(exc, 100)}; record the program again with this version"
        ) from exc
    if not isinstance(found, torch._ops.OpOverload):
        raise _foreign(call.namespace, name)
    refuse_foreign(found)
    return found


def _recomputation(call: Call) -> Recomputation:
    calls, reentrant = call.arguments[0]
    if not isinstance(calls, int) or not 0 <= calls <= _MOST_RECOMPUTED:
        raise _foreign(call.namespace, f"{call.operator} of {calls!r} calls")
    return Recomputation(call.operator, calls, bool(reentrant))


class _Kernel:
    """A compiled kernel, called as an operator is."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self._kernel = kernel

    def __call__(self, *arguments: Any, key: str) -> tuple[()]:
        """Run it; it returns nothing."""
        self._kernel(*arguments)
        return ()


def refuse_foreign(operator: Any) -> None:
    """:class:`BackendError` for an operator that is not made again: one of no library that is here.

    What is replayed may come from another host, so it may only compute: operators that take the
    name of a file are refused too.
    """
    files = any(argument.name == "filename" for argument in operator._schema.arguments)
    if operator.namespace not in _NAMESPACES or files:
        raise _foreign(operator.namespace, operator._opname)


def _foreign(namespace: str, name: str) -> BackendError:
    return BackendError(
        f"{namespace}::{name} cannot be replayed: use operators of PyTorch itself, or leave it out"
        " of the step"
    )


def _value(told: Any, tensors: Sequence[Any], numbers: Sequence[float]) -> Any:
    if isinstance(told, list):
        return [_value(each, tensors, numbers) for each in told]
    if not isinstance(told, dict):
        return told
    ((kind, held),) = told.items()
    if kind == "t":
        return tensors[held]
    if kind == "s":
        return numbers[held]
    return _NAMED[kind](held)


def tensors_in(result: Any) -> Any:
    """The tensors of a result or argument, None for each missing one; other parts are none."""
    if isinstance(result, torch.Tensor) or result is None:
        yield result
    elif isinstance(result, list | tuple):
        for each in result:
            if each is None or isinstance(each, torch.Tensor | list | tuple):
                yield from tensors_in(each)


def empty(types: Sequence[TensorType], ports: Sequence[Port]) -> list[torch.Tensor]:
    """Tensors of these types, laid out as the ``ports`` of a call say; their values are anything.

    Ports of one storage share it. Where there are no ports, all are contiguous.
    """
    dtypes = [getattr(torch, TORCH_DTYPES[each.dtype]) for each in types]
    if not ports:
        return [torch.empty(t.shape, dtype=d) for t, d in zip(types, dtypes, strict=True)]
    sizes: dict[int, int] = {}
    shapes = [each.shape for each in types]
    for port, shape, dtype in zip(ports, shapes, dtypes, strict=True):
        last = port.offset + sum((s - 1) * n for s, n in zip(shape, port.strides, strict=True))
        size = 0 if 0 in shape else (last + 1) * dtype.itemsize
        sizes[port.storage] = max(sizes.get(port.storage, 0), size)
    storages = {number: torch.UntypedStorage(size) for number, size in sizes.items()}
    return [
        torch.empty(0, dtype=dtype).set_(storages[port.storage], port.offset, shape, port.strides)
        for port, shape, dtype in zip(ports, shapes, dtypes, strict=True)
    ]


class LoadedCalls:
    """Calls in order, as one brick: ``own`` makes tensors for its inputs and weights, by name.

    ``deciding`` are those whose values decide how long it takes, with their sketches.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        own: Callable[[], dict[str, torch.Tensor]],
        slots: Slots,
        deciding: Mapping[str, Sketch | None],
    ) -> None:
        self._calls = [ReplayedCall(node) for node in proto.graph.node]
        self._inputs = [info.name for info in proto.graph.input]
        self._outputs = [info.name for info in proto.graph.output]
        self._own, self._slots, self._deciding = own, slots, deciding
        self._turns: dict[str, Iterator[torch.Tensor]] = {}

    def bind(self, binding: Binding, region: Any) -> BoundCalls:
        """The calls with inputs from slots, or of their own, and outputs into slots."""
        own = self._own()
        for name in self._deciding.keys() - self._turns.keys():
            self._turns[name] = _in_turn(own[name], self._deciding[name])
        inputs = dict(zip(self._inputs, binding.inputs, strict=True))
        outputs = dict(zip(self._outputs, binding.outputs, strict=True))
        viewed = {call.inputs[0] for call in self._calls if call.call.operator == "as_strided"}
        return BoundCalls(self._calls, own, inputs, outputs, viewed, self._turns, self._slots)


def _in_turn(random: torch.Tensor, sketch: Sketch | None) -> Iterator[torch.Tensor]:
    """Values of a sketch, others each time as far as a processor may learn them; or random ones."""
    turns = sets_in_turn(random.numel())
    elements = elements_of(random)
    if sketch is None:
        return cycle([elements.clone()])
    return cycle([drawn(sketch, elements, seed) for seed in range(turns)])


class BoundCalls(RedrawableInputs):
    """Calls with the slots that they read and fill; an empty slot is replaced by an own tensor.

    Where a slot holds another shape than was recorded, since values decide that, the own tensor is
    taken. Inputs ``viewed`` are shown in another way: where a walk began behind the call that made
    a tensor's storage, what it holds of it may be too little, and the own tensor is taken. In
    ``turns`` are the values of own tensors that decide how long the calls take.
    """

    def __init__(
        self,
        calls: Sequence[ReplayedCall],
        own: Mapping[str, torch.Tensor],
        inputs: Mapping[str, int | None],
        outputs: Mapping[str, int | None],
        viewed: AbstractSet[str],
        turns: Mapping[str, Iterator[torch.Tensor]],
        slots: Slots,
    ) -> None:
        self._calls, self._own, self._slots = calls, own, slots
        self._turns = turns
        self._needs = {name: own[name].untyped_storage().nbytes() for name in viewed if name in own}
        self._inputs = [(name, slot) for name, slot in inputs.items() if slot is not None]
        self._outputs = [(name, slot) for name, slot in outputs.items() if slot is not None]
        self.redraw()

    def _fits(self, name: str, found: torch.Tensor) -> bool:
        if found.shape != self._own[name].shape:
            return False
        return bool(found.untyped_storage().nbytes() >= self._needs.get(name, 0))

    def redraw(self) -> None:
        """Write values anew where these decide how long the calls take."""
        for name, turns in self._turns.items():
            elements_of(self._own[name]).copy_(next(turns))

    def sample(self) -> Sample:
        """Run once; what the calls alone took."""
        values = dict(self._own)
        for name, slot in self._inputs:
            found = self._slots.get(slot)
            if found is not None and self._fits(name, found):
                values[name] = found
        taken, clock = 0, time.perf_counter_ns
        for each in self._calls:
            positional, named = each.arguments(values)
            operator = each.operator
            start = clock()
            result = operator(*positional, **named)
            taken += clock() - start
            if isinstance(operator, Recomputation):
                taken += operator.taken_ns()
            values.update(each.results(result, values))
        for name, slot in self._outputs:
            self._slots[slot] = values[name]
        return Sample(taken * 1e-9)
