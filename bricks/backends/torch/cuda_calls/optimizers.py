"""Optimisers: on a GPU one call updates all parameters, on the processor a loop one after another.

PyTorch's Python code decides this (``_default_to_fused_or_foreach``). A loop is recognised by the
operators of one turn; each column of equal calls becomes one call of lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from bricks.backends.torch.cuda_calls.listing import CallListing, IssuedCall, Operand
from bricks.graph.call import OPTIMIZER

Turn = tuple[IssuedCall, ...]


@dataclass(frozen=True, slots=True)
class OptimizerLoop:
    """The operators of a turn of an optimiser's loop over parameters, as a regular expression.

    The implementation with lists reads the number of each parameter's steps ``reads`` times.
    ``quotient`` is the overload with which it divides.
    """

    name: str
    turn: str
    reads: int = 0
    quotient: str = "Scalar"


LOOPS: tuple[OptimizerLoop, ...] = (
    OptimizerLoop(
        "Adam",
        r"add_\.Tensor (mul_\.Tensor |add\.Tensor )?lerp_\.Scalar mul_\.Tensor addcmul_ "
        r"_local_scalar_dense sqrt div\.Tensor add_\.Tensor addcdiv_ ",
        reads=2,
        quotient="ScalarList",
    ),
    OptimizerLoop(
        "RMSprop",
        r"add_\.Tensor (add\.Tensor )?mul_\.Tensor addcmul_ sqrt add_\.Tensor "
        r"(mul_\.Tensor addcdiv_ add_\.Tensor |addcdiv_ )",
    ),
    OptimizerLoop(
        "SGD", r"(add\.Tensor )?(mul_\.Tensor add_\.Tensor (add\.Tensor )?)?add_\.Tensor "
    ),
)

# Calls of lists for calls in a loop; the overload follows from the arguments.
_LISTS = {
    "add.Tensor": "_foreach_add", "add_.Tensor": "_foreach_add_", "mul_.Tensor": "_foreach_mul_",
    "lerp_.Scalar": "_foreach_lerp_", "addcmul_": "_foreach_addcmul_", "sqrt": "_foreach_sqrt",
    "div.Tensor": "_foreach_div_", "addcdiv_": "_foreach_addcdiv_",
}  # fmt: skip


def update_lists(listing: CallListing) -> int:
    """Let optimisers update lists of parameters; return the number of calls that this replaces."""
    positions = [at for at, call in enumerate(listing.calls) if call.phase == OPTIMIZER]
    if not positions:
        return 0
    begin, end = positions[0], positions[-1] + 1
    calls = tuple(listing.calls[begin:end])
    found = next(((loop, turns) for loop in LOOPS if (turns := _turns(loop, calls))), None)
    if found is None:
        return 0
    loop, turns = found
    listing.calls[begin:end] = [
        call
        for _, equal in groupby(turns, lambda turn: _sort(listing, turn))
        for call in _Lists(listing, loop, list(equal)).calls()
    ]
    return len(calls)


def _turns(loop: OptimizerLoop, calls: Turn) -> list[Turn]:
    """The turns of a loop that is all of ``calls``; empty if it is another."""
    operators = [f"{call.operator} " for call in calls]
    text = "".join(operators)
    turns: list[Turn] = []
    at = begin = 0
    while at < len(text):
        match = re.compile(loop.turn).match(text, at)
        if match is None:
            return []
        at, size = match.end(), match.group().count(" ")
        turns.append(calls[begin : begin + size])
        begin += size
    return turns


def _sort(listing: CallListing, turn: Turn) -> tuple[Any, ...]:
    """What parameters have in common that are updated together: operators, numbers and types."""
    numbers = tuple(
        each
        for call in turn
        for each in (*call.positional, *call.named.values())
        if not isinstance(each, Operand)
    )
    dtype = listing.types[turn[-1].operands[0].value].dtype
    return tuple(call.operator for call in turn), numbers, dtype


@dataclass(frozen=True, slots=True)
class _Lists:
    """The calls of lists for equal turns of a loop."""

    listing: CallListing
    loop: OptimizerLoop
    turns: Sequence[Turn]

    def calls(self) -> list[IssuedCall]:
        made: list[IssuedCall] = []
        for number, column in enumerate(zip(*self.turns, strict=True)):
            first = column[0]
            is_step = number == 0 and first.operator == "add_.Tensor"
            if first.operator == "_local_scalar_dense":
                made += [replace(call, freed=()) for call in column * self.loop.reads]
            elif is_step and not isinstance(first.positional[1], Operand):
                made += self._steps(column)
            else:
                made.append(self._list(column))
        last = {
            name: at
            for at, call in enumerate(made)
            for name in (*(operand.value for operand in call.operands), *call.outputs)
        }
        by_call: dict[int, list[str]] = {}
        freed = {name for turn in self.turns for call in turn for name in call.freed}
        for name in sorted(freed):
            by_call.setdefault(last.get(name, len(made) - 1), []).append(name)
        return [replace(call, freed=tuple(by_call.get(at, ()))) for at, call in enumerate(made)]

    def _steps(self, column: Turn) -> Iterator[IssuedCall]:
        """Calls that count a step: its numbers are on the processor, and one is added to all."""
        one, lifted = (self.listing.new(stem, "FLOAT", ()) for stem in ("constant", "lift_fresh"))
        self.listing.begins.append(one)
        yield IssuedCall(
            "lift_fresh", [Operand(one, 0, ())], (lifted,), shared={lifted: one}, phase=OPTIMIZER
        )
        arguments = [[call.positional[0] for call in column], Operand(lifted, 0, ())]
        yield self._in_place("_foreach_add_.Tensor", arguments, {"alpha": 1.0}, column)

    def _list(self, column: Turn) -> IssuedCall:
        first = column[0]
        named = dict(first.named)
        arguments: list[Any] = [
            [call.positional[at] for call in column] if isinstance(each, Operand) else each
            for at, each in enumerate(first.positional)
        ]
        if "value" in named:
            arguments.append(named.pop("value"))
        name = _LISTS[first.operator]
        overload = "List"
        if name == "_foreach_sqrt":
            overload = ""
        elif name in ("_foreach_div_", "_foreach_addcdiv_"):
            overload = self.loop.quotient
        elif not isinstance(arguments[-1], list) or name == "_foreach_addcmul_":
            overload = "Scalar"
        if overload == "ScalarList":
            arguments[-1] = [arguments[-1]] * len(column)
        operator = f"{name}.{overload}" if overload else name
        if name.endswith("_"):
            return self._in_place(operator, arguments, named, column)
        outputs = tuple(call.outputs[0] for call in column)
        return IssuedCall(operator, arguments, outputs, named, phase=OPTIMIZER)

    def _in_place(
        self, operator: str, arguments: list[Any], named: Mapping[str, Any], column: Turn
    ) -> IssuedCall:
        """A call that writes to the tensors of its first argument and returns nothing."""
        made = tuple(call.outputs[0] for call in column)
        shared = {name: call.positional[0].value for name, call in zip(made, column, strict=True)}
        return IssuedCall(operator, arguments, ("", *made), named, shared, OPTIMIZER)
