"""Steps of published decoders as PyTorch's programs on CUDA, written from their dimensions.

A step, from tokens to the logits of the last one, is written call by call, as recording it on a GPU
would have it; nothing is run. Cards that divide a decoder exchange what each has computed, as in
Megatron-LM: partial sums are reduced in place, parts of a last dimension are gathered, and a card
looks up the tokens of its own part of the vocabulary.

Must neither import PyTorch, nor know any architecture by name or how long any call takes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import onnx
from onnx import TensorProto, helper

from bricks.architectures.architecture import Architecture, part_of
from bricks.backends.torch.cuda_calls.attention import (
    Attention,
    CudnnKernel,
    FusedAttention,
    kernel_for,
)
from bricks.backends.torch.cuda_calls.listing import IssuedCall, Operand, settle, write
from bricks.backends.torch.cuda_calls.strides import dense_like
from bricks.backends.torch.cuda_calls.tape import Tape
from bricks.errors import ModelError
from bricks.graph.call import BUFFERS, FORWARD, INFERENCE, INPUTS, PARAMETERS
from bricks.graph.form import DOMAIN
from bricks.graph.program import COLLECTIVES, Origin, State

_IDS, _PLACES, _IR_VERSION = "input_ids", "positions", 10
_EPSILON = 1e-5


def decoder_step(
    name: str, of: Architecture, batch: int, tokens: int, past: int, cards: int = 1
) -> onnx.ModelProto:
    """The program of a step of ``batch`` texts with ``tokens`` new tokens after ``past`` others.

    Tokens are the whole prompt, after none, or one. If several ``cards`` divide the decoder, it is
    the program of the first. Raises :class:`ModelError` for attention that no kernel computes at
    once, and for cards that cannot divide the decoder.
    """
    if of.score_cap:
        raise ModelError(f"{name} bounds its scores, and no fused kernel of a GPU does")
    if of.window is not None and past + tokens > of.window:
        raise ModelError(
            f"{name} attends to {of.window} tokens, and steps on a GPU are known without such a"
            f" window: ask for at most {of.window} tokens"
        )
    tape = Tape()
    part = part_of(name, of, cards)
    step = _WrittenStep(tape, part, batch, tokens, past, Cards(tape, cards), of.vocabulary)
    results = step.run()
    tape.listing.results = frozenset(results)
    settle(tape.listing)
    return write(tape.listing, _program(name, tape, results))


def _program(name: str, tape: Tape, results: list[str]) -> onnx.ModelProto:
    """A program without calls, with inputs, results and the bytes that exist before the step."""
    types = tape.listing.types

    def declared(names: list[str]) -> list[onnx.ValueInfoProto]:
        known = ((each, types[each]) for each in names if each in types)
        return [
            helper.make_tensor_value_info(each, TensorProto.DataType.Value(t.dtype), t.shape)
            for each, t in known
        ]

    inputs = [each for each in (_IDS, _PLACES) if each in types]
    graph = helper.make_graph([], name, declared(inputs), declared(results))
    namespaces = dict.fromkeys(call.namespace for call in tape.listing.calls)
    opsets = [helper.make_opsetid(f"{DOMAIN}{namespace}", 1) for namespace in namespaces]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    sizes = {INPUTS: inputs, PARAMETERS: tape.weights, BUFFERS: tape.buffers}
    Origin("", "", INFERENCE, "", runtime="torch").note(proto)
    State({role: sum(types[n].size_bytes for n in of) for role, of in sizes.items()}).note(proto)
    return proto


@dataclass(slots=True)
class _WrittenStep:
    """Writes a step of ``batch`` texts onto ``tape``; a step after others has one token.

    ``of`` is the part of one of the ``cards`` that divide a decoder with this ``vocabulary``.
    """

    tape: Tape
    of: Architecture
    batch: int
    tokens: int
    past: int
    cards: Cards
    vocabulary: int

    def run(self) -> list[str]:
        """Write all calls; the names of results: the cache, then the logits."""
        of, tape = self.of, self.tape
        ids = tape.given(_IDS, self.batch, self.tokens)
        # A slice of tables is enough for a prompt.
        places = tape.given(_PLACES, self.tokens) if self.past or not of.rotary else None
        width = round(of.rotary * of.head)
        tables = [tape.buffer(name, of.positions, width) for name in ("cos", "sin") if width]
        if places is None:
            rotations = [tape.sliced(table, 0, 0, self.tokens, self.tokens) for table in tables]
        else:
            shape = (self.tokens, width)
            rotations = [tape.call("index.Tensor", [table, [places]], shape) for table in tables]
        table = tape.weight("embedding", of.vocabulary, of.hidden)
        state, kept = self.cards.looked_up(table, ids), list[str]()
        if not of.rotary:
            learned = tape.weight("places", of.positions, of.hidden)
            added = tape.call("embedding", [learned, places], (self.tokens, of.hidden))
            state = tape.each("add.Tensor", state, added)
        for layer in range(of.layers):
            normal = self._norm(state, f"{layer}.norm1")
            mixed = self._attention(normal, layer, places, rotations, kept)
            if of.parallel:
                state = tape.each("add.Tensor", mixed, self._feed_forward(normal, layer))
                continue
            state = tape.each("add.Tensor", state, self._after(mixed, f"{layer}.attention_norm"))
            inner = self._feed_forward(self._norm(state, f"{layer}.norm2"), layer)
            state = tape.each("add.Tensor", state, self._after(inner, f"{layer}.inner_norm"))
        return [*kept, self._logits(state).value]

    def _attention(
        self,
        value: Operand,
        layer: int,
        places: Operand | None,
        rotations: list[Operand],
        kept: list[str],
    ) -> Operand:
        of, tape = self.of, self.tape
        query = self._heads(value, f"{layer}.query", of.heads, rotations)
        key = self._heads(value, f"{layer}.key", of.kv_heads, rotations)
        values = self._heads(value, f"{layer}.value", of.kv_heads, [])
        if self.past and places is not None:
            shape = (self.batch, of.kv_heads, self.past + 1, of.head)
            key, values = (
                tape.written(tape.buffer(f"{layer}.{name}_cache", *shape), 2, places, new)
                for name, new in (("key", key), ("value", values))
            )
        kept += [key.value, values.value]
        mixed = attended(tape, query, key, values, causal=self.tokens > 1)
        joined = tape.joined(tape.transposed(mixed, 1, 2))
        return self._reduced(joined, f"{layer}.out")

    def _heads(self, value: Operand, name: str, heads: int, rotations: list[Operand]) -> Operand:
        """Queries, keys or values: (texts, heads, tokens, head)."""
        of, tape = self.of, self.tape
        product = self._linear(value, name, heads * of.head, bias=of.bias or of.qkv_bias)
        split = tape.view(product, self.batch, self.tokens, heads, of.head)
        if of.head_norms and not name.endswith("value"):
            split = self._norm(split, name)
        turned = tape.transposed(split, 1, 2)
        return self._rotated(turned, *rotations) if rotations else turned

    def _rotated(self, value: Operand, cosines: Operand, sines: Operand) -> Operand:
        tape, width = self.tape, self.tape.shape(cosines)[-1]
        head = self.of.head
        if width == head:
            return self._turned(value, cosines, sines)
        part = tape.sliced(value, 3, 0, width, width)
        rest = tape.sliced(value, 3, width, sys.maxsize, head - width)
        joined = [self._turned(part, cosines, sines), rest]
        return tape.call("cat", [joined, -1], tape.shape(value))

    def _turned(self, value: Operand, cosines: Operand, sines: Operand) -> Operand:
        tape = self.tape
        first, second = tape.halves(value)
        kept = tape.each("mul.Tensor", value, cosines)
        crossed = tape.call("cat", [[tape.each("neg", second), first], -1], tape.shape(value))
        return tape.each("add.Tensor", kept, tape.each("mul.Tensor", crossed, sines))

    def _feed_forward(self, value: Operand, layer: int) -> Operand:
        of, tape = self.of, self.tape
        if of.gated:
            gate = self._active(self._linear(value, f"{layer}.gate", of.inner, bias=of.bias))
            up = self._linear(value, f"{layer}.up", of.inner, bias=of.bias)
            inner = tape.each("mul.Tensor", gate, up)
        else:
            inner = self._active(self._linear(value, f"{layer}.up", of.inner, bias=of.bias))
        return self._reduced(inner, f"{layer}.down")

    def _reduced(self, value: Operand, name: str) -> Operand:
        """The product with a matrix whose rows cards divide; its bias is added to their sum."""
        of, tape, several = self.of, self.tape, self.cards.count > 1
        partial = self._linear(value, name, of.hidden, bias=of.bias and not several)
        total = self.cards.reduced(partial)
        if not (of.bias and several):
            return total
        return tape.each("add.Tensor", total, tape.weight(f"{name}.bias", of.hidden))

    def _active(self, value: Operand) -> Operand:
        if self.of.activation == "gelu":
            return self.tape.each("gelu", value, approximate="tanh")
        return self.tape.each("silu", value)

    def _after(self, value: Operand, name: str) -> Operand:
        return self._norm(value, name) if self.of.post_norms else value

    def _norm(self, value: Operand, name: str) -> Operand:
        tape = self.tape
        *outer, width = tape.shape(value)
        scale = tape.weight(f"{name}.scale", width)
        if not self.of.layer_norm:
            root = tape.new("root", (*outer, 1), "FLOAT")
            arguments = [value, [width], scale, None]
            return tape.call("_fused_rms_norm", arguments, (*outer, width), others=[root])
        moments = [tape.new("moment", (*outer, 1), "FLOAT") for _ in range(2)]
        arguments = [value, [width], scale, tape.weight(f"{name}.shift", width), _EPSILON]
        return tape.call("native_layer_norm", arguments, (*outer, width), others=moments)

    def _linear(self, value: Operand, name: str, width: int, *, bias: bool) -> Operand:
        """The product with a matrix, which is kept with its results first."""
        tape, (*outer, inner) = self.tape, self.tape.shape(value)
        rows = self.batch * outer[1]
        weight = tape.weight(f"{name}.weight", width, inner)
        if bias:
            shift = tape.weight(f"{name}.bias", width)
            flat = tape.view(value, rows, inner)
            arguments = [shift, flat, tape.turned(weight)]
            return tape.view(tape.call("addmm", arguments, (rows, width)), *outer, width)
        turned = tape.turned(weight)
        flat = tape.view(value, rows, inner)
        product = tape.call("mm", [flat, turned], (rows, width))
        return tape.view(product, *outer, width, unsafe=True)

    def _logits(self, state: Operand) -> Operand:
        of, tape = self.of, self.tape
        last = tape.sliced(state, 1, -1, sys.maxsize, 1)
        normal = self._norm(last, "norm")
        if of.tied:
            tied = tape.turned(tape.weight("embedding", of.vocabulary, of.hidden))
            flat = tape.view(normal, self.batch, of.hidden)
            product = tape.call("mm", [flat, tied], (self.batch, of.vocabulary))
            logits = tape.view(product, self.batch, 1, of.vocabulary, unsafe=True)
        else:
            logits = self._linear(normal, "head", of.vocabulary, bias=of.head_bias)
        if self.cards.count > 1:  # each has a part of the vocabulary
            flat = tape.view(logits, self.batch, of.vocabulary)
            whole = self.cards.gathered(flat, self.vocabulary)
            logits = tape.view(whole, self.batch, 1, self.vocabulary)
        if not of.logit_cap:
            return logits
        bounded = tape.each("tanh", tape.each("div.Tensor", logits, of.logit_cap))
        return tape.each("mul.Tensor", bounded, of.logit_cap)


def attended(tape: Tape, query: Operand, key: Operand, value: Operand, *, causal: bool) -> Operand:
    """Attention of (texts, heads, tokens, head) tensors; keys may have fewer heads."""
    shape = tape.shape(query)
    strides = dense_like(shape, query.strides)
    output = tape.new("attention", shape)
    attention = Attention(query, key, value, None, 0.0, causal, None, output)
    kernel: FusedAttention | None = kernel_for(tape.listing, attention)
    if isinstance(kernel, CudnnKernel):
        calls = kernel.forward(attention)
    else:  # flash attention, which takes wider heads than cuDNN
        name, (texts, heads, tokens, _) = "_scaled_dot_product_flash_attention", shape
        sums = tape.new("logsumexp", (texts, heads, tokens), "FLOAT")
        seeds = [tape.new("rng_state", each, "UINT64") for each in ((2,), ())]
        outputs = (output, sums, "", "", *seeds, "")
        arguments = [query, key, value, *([0.0, True] if causal else [])]
        calls = [IssuedCall(name, arguments, outputs)]
    tape.listing.calls += [replace(call, phase=FORWARD) for call in calls]
    return Operand(output, 0, strides)


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
