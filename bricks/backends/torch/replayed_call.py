"""A recorded call that is made again, on any tensors.

Must not know where tensors come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

import torch

from bricks.backends.torch.calling import foreign, operator_called, resolved, tensors_in
from bricks.backends.torch.namespaces import PACKED, QUANTIZED
from bricks.backends.torch.recomputation import HIDE, RECOMPUTATION, RECOMPUTE, Recomputation
from bricks.graph.call import Call, leaves

# The namespace of kernels that PyTorch's compiler makes.
KERNEL = "kernel"

# More calls than recomputed layers make; a program of another host could name any number.
_MOST_RECOMPUTED = 1 << 16


class ReplayedCall:
    """A recorded call with the names of its inputs and outputs, ready to be made on tensors.

    The last input of one that ``takes_numbers`` has them.
    """

    def __init__(self, call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.call, self.operator = call, _operator(call)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        positional, named = call.arguments
        arguments = leaves([*positional, *named.values()])
        self.takes_numbers = any(isinstance(leaf, dict) and "s" in leaf for leaf in arguments)

    def run(self, values: dict[str, Any]) -> int:
        """Make the call on ``values`` and add its outputs to them; nanoseconds of the operator."""
        (positional, named), operator = self._arguments(values), self.operator
        clock = time.perf_counter_ns
        start = clock()
        result = operator(*positional, **named)
        taken_ns = clock() - start
        returned = list(tensors_in(result))
        for number, name in enumerate(self.outputs):
            if number < len(returned):
                values[name] = returned[number]
            else:  # an argument that the call has written to
                values[name] = values[self.inputs[self.call.aliases[number]]]
        return taken_ns

    def _arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments, with the tensors and numbers of ``values``."""
        tensors = [values[name] for name in self.inputs]
        numbers = tensors.pop().tolist() if self.takes_numbers else []
        positional, named = self.call.arguments
        return (
            [resolved(each, tensors, numbers) for each in positional],
            {name: resolved(each, tensors, numbers) for name, each in named.items()},
        )


def _operator(call: Call) -> Any:
    if call.namespace == KERNEL:
        from bricks.backends.torch.kernels import kept_kernel  # slow import

        return _Kernel(kept_kernel(str(call.arguments[1].get("key"))))
    if call.namespace == RECOMPUTATION and call.operator in (HIDE, RECOMPUTE):
        return _recomputation(call)
    if call.namespace == QUANTIZED and call.operator in PACKED:
        return _PackedProduct(call.operator)
    return operator_called(call.namespace, call.operator)


def _recomputation(call: Call) -> Recomputation:
    calls, reentrant = call.arguments[0]
    if not isinstance(calls, int) or not 0 <= calls <= _MOST_RECOMPUTED:
        raise foreign(call.namespace, f"{call.operator} of {calls!r} calls")
    return Recomputation(call.operator, calls, bool(reentrant))


class _PackedProduct:
    """A quantised product with the interface of an operator; its weights are packed once."""

    def __init__(self, operator: str) -> None:
        self._operator = getattr(torch.ops.quantized, operator).default
        self._parts: list[Any] = []
        self._packed: Any = None

    def __call__(self, x: Any, parts: list[Any], *others: Any) -> Any:
        """Run the product with weights that were unpacked to ``parts``: see ``call_arguments``."""
        if not (self._parts and all(map(is_, parts, self._parts))):
            self._parts, self._packed = parts, _packed(*parts)
        return self._operator(x, self._packed, *others)


def _packed(weight: Any, bias: Any, scale: Any, zero: Any) -> Any:
    if isinstance(scale, float):
        quantised = torch._make_per_tensor_quantized_tensor(weight, scale, zero)
    else:
        quantised = torch._make_per_channel_quantized_tensor(weight, scale, zero, 0)
    return torch.ops.quantized.linear_prepack(quantised, bias)


class _Kernel:
    """A compiled kernel with the interface of an operator."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self._kernel = kernel

    def __call__(self, *arguments: Any, key: str) -> tuple[()]:
        """Run the kernel, which returns nothing."""
        self._kernel(*arguments)
        return ()
