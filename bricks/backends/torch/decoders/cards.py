"""Calls by which cards that divide a decoder exchange what each has computed.

As in Megatron-LM: partial sums are reduced in place, parts of a last dimension are gathered, and a
card looks up the tokens of its own part of the vocabulary. Must not know how long any call takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.program import COLLECTIVES

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.issued import Operand
    from bricks.backends.torch.decoders.tape import Tape


@dataclass(frozen=True, slots=True)
class Cards:
    """Writes the exchanges of a card with the others onto ``tape``; ``count`` cards in all."""

    tape: Tape
    count: int

    def reduced(self, partial: Operand) -> Operand:
        """The sum of the ``partial`` values of all cards, in their place."""
        if self.count == 1:
            return partial
        return self.tape.changed("all_reduce_", partial, "sum", self.count, namespace=COLLECTIVES)

    def gathered(self, part: Operand, whole: int) -> Operand:
        """The parts of all cards in one last dimension, cut to ``whole`` elements.

        ``part`` has a dimension of texts and one of its elements.
        """
        if self.count == 1:
            return part
        tape, (texts, width) = self.tape, self.tape.shape(part)
        arguments, shape = [part, self.count], (self.count * texts, width)
        operator = "all_gather_into_tensor"
        parts = tape.call(operator, arguments, shape, namespace=COLLECTIVES)
        by_card = tape.view(parts, self.count, texts, width)
        joined = tape.joined(tape.transposed(by_card, 0, 1))
        padded = whole < self.count * width
        return tape.sliced(joined, 1, 0, whole, whole) if padded else joined

    def looked_up(self, table: Operand, ids: Operand) -> Operand:
        """The rows of a divided ``table`` that ``ids`` mean; other cards' rows come from them."""
        tape, (rows, width) = self.tape, self.tape.shape(table)
        shape = tape.shape(ids)
        if self.count == 1:
            return tape.call("embedding", [table, ids], (*shape, width))
        below = tape.call("lt.Scalar", [ids, 0], shape, dtype="BOOL")
        above = tape.call("ge.Scalar", [ids, rows], shape, dtype="BOOL")
        others = tape.call("bitwise_or.Tensor", [below, above], shape, dtype="BOOL")
        local = tape.call("sub.Tensor", [ids, 0], shape, dtype="INT64")
        known = tape.changed("masked_fill_.Scalar", local, others, 0)
        found = tape.call("embedding", [table, known], (*shape, width))
        mask = tape.widened(others)
        return self.reduced(tape.changed("masked_fill_.Scalar", found, mask, 0))
