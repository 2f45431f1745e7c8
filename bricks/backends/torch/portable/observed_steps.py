"""Tiny programs whose calls are observed where they run, without a recording.

Must not know how the call overhead follows from them.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bricks.backends.torch.calling import tensors_in
from bricks.backends.torch.phase_probes import PhaseProbes
from bricks.backends.torch.tiny_programs import MODULES, tiny_program
from bricks.backends.torch.tiny_steps import PhasedCall, TinySteps
from bricks.graph.evictions import evicted_share, writes

if TYPE_CHECKING:
    from bricks.backends.torch.devices.device import Device

_WARM_UPS = 2
# Calls of these namespaces compute nothing.
_IDLE = frozenset({"profiler"})


class ObservedCall:
    """A call of ``operator``, whose tensors are named by what they view of which storage."""

    def __init__(self, operator: Any, arguments: Any, outputs: Sequence[Hashable]) -> None:
        self._operator, self._arguments, self._outputs = operator, arguments, outputs

    def run(self, values: dict[Hashable, Any]) -> int:
        """Make the call on ``values`` and add its outputs to them; nanoseconds of the operator."""
        clock = time.perf_counter_ns
        positional, named = _with_values(self._arguments, values)
        operator = self._operator
        started = clock()
        result = operator(*positional, **named)
        taken_ns = clock() - started
        for name, tensor in zip(self._outputs, tensors_in(result), strict=False):
            values[name] = tensor
        return taken_ns


class _Named:
    """The place of a tensor among arguments."""

    def __init__(self, name: Hashable) -> None:
        self.name = name


class CallObserver(TorchDispatchMode):
    """Observes the calls of a step; ``phase`` is the one that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.calls: list[tuple[str, ObservedCall, set[Hashable]]] = []
        self.begins: dict[Hashable, torch.Tensor] = {}
        self.displaced: dict[str, float] = {}
        self._made: set[Hashable] = set()
        self._alive: list[torch.Tensor] = []  # so that no storage is used again

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Observe one call."""
        named = kwargs or {}
        if func.namespace in _IDLE:
            return func(*args, **named)
        read = [t for t in tensors_in([*args, *named.values()]) if t is not None]
        names = {_name(tensor) for tensor in read}
        for tensor in read:
            if _name(tensor) not in self._made:
                self.begins.setdefault(_name(tensor), tensor.detach().clone())
        arguments = _with_names([*args], named)
        result = func(*args, **named)
        returned = list(tensors_in(result))
        made = [t for t in returned if t is not None]
        self._alive += [*read, *made]
        outputs = [None if tensor is None else _name(tensor) for tensor in returned]
        self._made.update(outputs)
        self.calls.append((self.phase, ObservedCall(func, arguments, outputs), names))
        self._note_displaced(func, read, made)
        return result

    def _note_displaced(
        self, func: Any, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        storages = {tensor.untyped_storage()._cdata for tensor in read}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in storages]
        touched = 0
        if new or writes(str(func).partition(".")[2]):
            distinct = {_name(tensor): tensor.nbytes for tensor in [*read, *new]}
            touched = sum(distinct.values())
        before = self.displaced.get(self.phase, 0.0)
        self.displaced[self.phase] = before + evicted_share(touched)

    def phased(self) -> list[PhasedCall]:
        """The calls, each with the names of values that none reads later."""
        last = {name: n for n, (_, _, names) in enumerate(self.calls) for name in names}
        freed: dict[int, list[Hashable]] = {}
        for name, number in last.items():
            freed.setdefault(number, []).append(name)
        return [(phase, call, freed.get(n, ())) for n, (phase, call, _) in enumerate(self.calls)]


def observed_steps(which: str, training: bool, device: Device) -> TinySteps:
    """Run a tiny program, observe its calls, and return its steps."""
    with device.default():
        program = tiny_program(which, training=training)
    for _ in range(_WARM_UPS):
        program.step()
    observer = CallObserver()

    def mark(phase: str) -> None:
        observer.phase = phase

    with observer:
        program.step(mark)
    return TinySteps(program, observer.phased(), observer.begins, observer.displaced, device)


def observed_probes(training: bool, device: Device) -> PhaseProbes:
    """Return the probes of all phases of training steps, or of inference."""
    made = {name: observed_steps(name, training, device) for name in MODULES}
    return PhaseProbes(made, training)


def _name(tensor: torch.Tensor) -> Hashable:
    view = tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
    return (tensor.untyped_storage()._cdata, *view)


def _with_names(positional: Any, named: Mapping[str, Any]) -> Any:
    """Arguments with the names of tensors in place of these."""
    return [_named(each) for each in positional], {k: _named(v) for k, v in named.items()}


def _named(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return _Named(_name(argument))
    if isinstance(argument, (list, tuple)):
        return [_named(each) for each in argument]
    return argument


def _with_values(arguments: Any, values: Mapping[Hashable, Any]) -> Any:
    positional, named = arguments
    return (
        [_valued(each, values) for each in positional],
        {name: _valued(each, values) for name, each in named.items()},
    )


def _valued(argument: Any, values: Mapping[Hashable, Any]) -> Any:
    if isinstance(argument, _Named):
        return values[argument.name]
    return [_valued(each, values) for each in argument] if isinstance(argument, list) else argument
