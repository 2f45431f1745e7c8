"""Root-mean-square norm: one kernel in each pass on CUDA, single calls on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.patterns import stretches
from bricks.graph.program import contiguous

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing

_ROOT = r"pow\.Tensor_Scalar mean\.dim add_\.Scalar rsqrt (?:detach )?mul\.Tensor mul\.Tensor "
# Half precision is computed in float32.
_FORWARD = rf"(?:_to_copy {_ROOT}_to_copy |{_ROOT})"
_ROOT_BACKWARD = (
    r"detach pow\.Tensor_Scalar mul\.Scalar mul\.Tensor expand div\.Scalar pow\.Tensor_Scalar "
    r"mul\.Scalar mul\.Tensor add\.Tensor "
)
# A sum in the middle, or at the end, adds the gradient of a residual connection.
_BACKWARD = (
    r"(?:_to_copy mul\.Tensor mul\.Tensor sum\.dim_IntList view _to_copy detach mul\.Tensor "
    rf"mul\.Tensor sum\.dim_IntList {_ROOT_BACKWARD}_to_copy (?:add\.Tensor )?|"
    r"mul\.Tensor mul\.Tensor sum\.dim_IntList view detach mul\.Tensor "
    rf"mul\.Tensor sum\.dim_IntList (?:add\.Tensor )?{_ROOT_BACKWARD})"
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
    backwards = {back.kept: (span, back) for span, back in _backwards(calls)}
    changes: dict[range, list[IssuedCall]] = {}
    count = 0
    for span, norm in _norms(listing):
        root = Operand(norm.root, 0, contiguous(listing.types[norm.root].shape))
        back = backwards.get(norm.kept or "")
        if norm.kept is None or back is not None:
            changes[span] = norm.forward(root)
            count += 1
        if back is not None:
            changes[back[0]] = back[1].calls(norm, root)
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


@dataclass(frozen=True, slots=True)
class _Backward:
    """A norm's calls of the backward pass.

    ``root`` reads the root again, ``weights`` passes the weights' gradient on; ``residual`` adds
    the gradient of a residual connection, if there is one, with the norm's in ``summand``.
    """

    gradient: Operand
    root: IssuedCall
    weights: IssuedCall
    residual: Operand | None
    summand: str
    result: str

    @property
    def kept(self) -> str:
        """The value of the root that the forward pass keeps."""
        value: str = self.root.positional[0].value
        return value

    def calls(self, norm: _Norm, root: Operand) -> list[IssuedCall]:
        """The fused kernel, then the sum with a residual connection's gradient."""
        again = Operand(self.root.outputs[0], 0, root.strides)
        arguments = [
            self.gradient, norm.read, list(norm.width), again, norm.weight, [True, True],
        ]  # fmt: skip
        outputs = (self.summand, self.weights.positional[0].value)
        fused = IssuedCall("_fused_rms_norm_backward", arguments, outputs)
        if self.residual is None:
            return [self.root, fused, self.weights]
        summands = [self.residual, Operand(self.summand, 0, self.gradient.strides)]
        summed = IssuedCall("add.Tensor", summands, (self.result,))
        return [self.root, fused, summed, self.weights]


def _backwards(calls: list[IssuedCall]) -> Iterator[tuple[range, _Backward]]:
    for span in stretches(_BACKWARD, calls):
        own = calls[span.start : span.stop]
        half = own[0].operator == "_to_copy"
        if half and own[-1].operator == "add.Tensor" and not _reads(own[-1], own[-2].outputs[0]):
            span, own = span[:-1], own[:-1]
        yield span, _backward(own, half)


def _backward(calls: list[IssuedCall], half: bool) -> _Backward:
    weights, root = [call for call in calls if call.operator == "detach"]
    sums = [call for call in calls if call.operator == "add.Tensor"]
    # In half precision the last sum adds the residual connection's gradient, else the first does.
    added = None if len(sums) == 1 else sums[-1 if half else 0]
    result = calls[-1].outputs[0]
    if added is None:
        return _Backward(calls[0].positional[0], root, weights, None, result, result)
    summand = added.positional[1].value if half else added.outputs[0]
    return _Backward(calls[0].positional[0], root, weights, added.positional[0], summand, result)


def _reads(call: IssuedCall, value: str) -> bool:
    return any(operand.value == value for operand in call.operands)


def _detach(root: Operand, output: str) -> IssuedCall:
    return IssuedCall("detach", [root], (output,), shared={output: root.value})
