"""Root-mean-square norm: one kernel in each pass on CUDA, single calls on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.listing import CallListing
from bricks.backends.torch.cuda_calls.patterns import stretches
from bricks.graph.program import contiguous

_FORWARD = (
    r"(?:_to_copy )?pow\.Tensor_Scalar mean\.dim add_\.Scalar rsqrt (?:detach )?"
    r"mul\.Tensor mul\.Tensor (?:_to_copy )?"
)
# A sum in the middle adds the gradient of a residual connection.
_BACKWARD = (
    r"mul\.Tensor mul\.Tensor sum\.dim_IntList view detach mul\.Tensor mul\.Tensor "
    r"sum\.dim_IntList (?:add\.Tensor )?detach pow\.Tensor_Scalar mul\.Scalar mul\.Tensor expand "
    r"div\.Scalar pow\.Tensor_Scalar mul\.Scalar mul\.Tensor add\.Tensor "
)
# What PyTorch adds to the mean square if the user says nothing, which its kernel gets as None.
_USUAL_EPSILON = 2.0**-23


@dataclass(frozen=True, slots=True)
class _Norm:
    """A norm of the forward pass; ``root`` is the inverse root that it makes.

    ``kept`` is the root as the backward pass reads it, if there is one.
    """

    read: Operand
    weight: Operand
    width: tuple[int, ...]
    epsilon: float | None
    root: str
    kept: str | None
    output: str

    def forward(self, root: Operand) -> list[IssuedCall]:
        """The fused kernel, and the value that the backward pass keeps."""
        arguments: list[Any] = [self.read, list(self.width), self.weight, self.epsilon]
        call = IssuedCall("_fused_rms_norm", arguments, (self.output, self.root))
        return [call] if self.kept is None else [call, _detach(root, self.kept)]


def fuse_rms_norm(listing: CallListing) -> int:
    """Replace norms by the fused kernels; return the number of norms in the forward pass."""
    calls = listing.calls
    backwards = {calls[span[6]].positional[1].value: span for span in stretches(_BACKWARD, calls)}
    changes: dict[range, list[IssuedCall]] = {}
    count = 0
    for span, norm in _norms(listing):
        shape = listing.types[norm.root].shape
        back = backwards.get(norm.kept or "")
        if norm.kept is None or back is not None:
            changes[span] = norm.forward(Operand(norm.root, 0, contiguous(shape)))
            count += 1
        if norm.kept is not None and back is not None:
            changes[back] = _backward(listing, norm, calls[back.start : back.stop])
    listing.substitute(changes, {})
    return count


def _norms(listing: CallListing) -> Iterator[tuple[range, _Norm]]:
    for span in stretches(_FORWARD, listing.calls):
        calls = listing.calls[span.start : span.stop]
        products = [call for call in calls if call.operator == "mul.Tensor"]
        read, weight = calls[0].positional[0], products[1].positional[1]
        types = listing.types
        if isinstance(weight, Operand) and types[weight.value].dtype == types[read.value].dtype:
            yield span, _norm(calls, weight, types[weight.value].shape)


def _norm(calls: list[IssuedCall], weight: Operand, width: tuple[int, ...]) -> _Norm:
    by_name = {call.name: call for call in calls}
    epsilon, kept = by_name["add_"].positional[1], by_name.get("detach")
    return _Norm(
        calls[0].positional[0], weight, width,
        None if epsilon == _USUAL_EPSILON else float(epsilon),
        by_name["rsqrt"].outputs[0], None if kept is None else kept.outputs[0],
        calls[-1].outputs[0],
    )  # fmt: skip


def _backward(listing: CallListing, norm: _Norm, calls: list[IssuedCall]) -> list[IssuedCall]:
    """The fused kernel, then the sum with a residual connection's gradient."""
    root = next(each for each in calls[5:] if each.operator == "detach")
    kept, weights, detached = root.outputs[0], calls[3].outputs[0], calls[4]
    result = calls[-1].outputs[0]
    shape = listing.types[norm.root].shape
    residual = next((call for call in calls[:-1] if call.operator == "add.Tensor"), None)
    made = result if residual is None else residual.outputs[0]
    arguments = [
        calls[0].positional[0], norm.read, list(norm.width), Operand(kept, 0, contiguous(shape)),
        norm.weight, [True, True],
    ]  # fmt: skip
    fused = IssuedCall("_fused_rms_norm_backward", arguments, (made, weights))
    sums = [] if residual is None else [_sum(residual, calls[-1])]
    return [root, fused, *sums, detached]


def _sum(residual: IssuedCall, last: IssuedCall) -> IssuedCall:
    """The sum of a residual connection's gradient and the norm's, in the place of two sums."""
    own = residual.outputs[0]
    other, _ = residual.positional
    summand = last.positional[1]
    return IssuedCall("add.Tensor", [other, Operand(own, 0, summand.strides)], last.outputs)


def _detach(root: Operand, output: str) -> IssuedCall:
    return IssuedCall("detach", [root], (output,), shared={output: root.value})
