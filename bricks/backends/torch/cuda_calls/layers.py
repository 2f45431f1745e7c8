"""Layers for which CUDA makes other calls: norms, dropout, embedding bags, the CTC loss.

Root-mean-square norm is one kernel in each pass on CUDA, single calls on the processor. Batch norm:
cuDNN normalises images, PyTorch's own kernels the rest. Dropout: one kernel on a GPU draws the mask
and applies it; it keeps the mask as booleans. Embedding bags: what the kernels keep for the
backward pass has other sizes on a GPU. Connectionist temporal classification: on a GPU, PyTorch
first asks whether cuDNN can do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bricks.backends.torch.cuda_calls.listing import CallListing, IssuedCall, Operand, stretches
from bricks.graph.program import contiguous
from bricks.graph.types import TensorType

_ROOT = r"pow\.Tensor_Scalar mean\.dim add_\.Scalar rsqrt (?:detach )?mul\.Tensor mul\.Tensor "
# Half precision is computed in float32.
_RMS_NORM = rf"(?:_to_copy {_ROOT}_to_copy |{_ROOT})"
_ROOT_BACKWARD = (
    r"detach pow\.Tensor_Scalar mul\.Scalar mul\.Tensor expand div\.Scalar pow\.Tensor_Scalar "
    r"mul\.Scalar mul\.Tensor add\.Tensor "
)
# A sum in the middle, or at the end, adds the gradient of a residual connection.
_RMS_NORM_BACKWARD = (
    r"(?:_to_copy mul\.Tensor mul\.Tensor sum\.dim_IntList view _to_copy detach mul\.Tensor "
    rf"mul\.Tensor sum\.dim_IntList {_ROOT_BACKWARD}_to_copy (?:add\.Tensor )?|"
    r"mul\.Tensor mul\.Tensor sum\.dim_IntList view detach mul\.Tensor "
    rf"mul\.Tensor sum\.dim_IntList (?:add\.Tensor )?{_ROOT_BACKWARD})"
)
# What PyTorch adds to the mean square if the user says nothing, which its kernel gets as None.
_USUAL_EPSILON = 2.0**-23

# Samples up to which cuDNN is used, in training and in inference.
_SAMPLES = {True: 880_801, False: 65_535}

# The processor fills an empty tensor with zeros and ones, divides it by the share of ones, and
# multiplies it with the input.
_DRAWN = ("empty_like", "bernoulli_.float", "div_.Scalar", "mul.Tensor")

# The mode of embedding bags that takes maxima.
_MAX = 2


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
        if self.kept is None:
            return [call]
        return [call, IssuedCall("detach", [root], (self.kept,), shared={self.kept: root.value})]


def fuse_rms_norm(listing: CallListing) -> int:
    """Replace norms by the fused kernels; return the number of norms in the forward pass."""
    calls = listing.calls
    # By the value of the root that the forward pass keeps.
    backwards = {b.root.positional[0].value: (span, b) for span, b in _backwards(calls)}
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
    for span in stretches(_RMS_NORM, listing.calls):
        calls = listing.calls[span.start : span.stop]
        products = [call for call in calls if call.operator == "mul.Tensor"]
        read, weight = calls[0].positional[0], products[1].positional[1]
        types = listing.types
        if isinstance(weight, Operand) and types[weight.value].dtype == types[read.value].dtype:
            by_name = {call.name: call for call in calls}
            epsilon, kept = by_name["add_"].positional[1], by_name.get("detach")
            yield span, _Norm(
                read, weight, types[weight.value].shape,
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
    for span in stretches(_RMS_NORM_BACKWARD, calls):
        own = calls[span.start : span.stop]
        half = own[0].operator == "_to_copy"
        if half and own[-1].operator == "add.Tensor" and not own[-1].reads(own[-2].outputs[0]):
            span, own = span[:-1], own[:-1]
        weights, root = [call for call in own if call.operator == "detach"]
        sums = [call for call in own if call.operator == "add.Tensor"]
        # In half precision the last sum adds the residual connection's gradient, else the first.
        added = None if len(sums) == 1 else sums[-1 if half else 0]
        gradient, result = own[0].positional[0], own[-1].outputs[0]
        if added is None:
            yield span, _Backward(gradient, root, weights, None, result, result)
            continue
        summand = added.positional[1].value if half else added.outputs[0]
        yield span, _Backward(gradient, root, weights, added.positional[0], summand, result)


def use_cudnn(listing: CallListing) -> int:
    """Replace batch norm by cuDNN's where PyTorch prefers it; return the number of calls."""
    reserves: dict[str, str] = {}
    calls: list[IssuedCall] = []
    for call in listing.calls:
        chosen = call.operator == "native_batch_norm" and _cudnn(listing, call)
        if not chosen:
            if call.operator == "native_batch_norm":
                read = listing.types[call.positional[0].value]
                dtype = "DOUBLE" if read.dtype == "DOUBLE" else "FLOAT"
                for name in call.outputs[1:]:
                    listing.types[name] = TensorType(dtype, (read.shape[1],))
            calls.append(call)
            continue
        before = calls[-1] if calls else None
        if before is not None and before.operator == "empty.memory_format":
            if listing.types[before.outputs[0]].shape == (0,):  # the workspace of other kernels
                calls.pop()
        reserve = listing.new("reserve", "UINT8", (0,))
        reserves[call.outputs[2]] = reserve
        outputs = (*call.outputs, reserve)
        calls.append(replace(call, operator="cudnn_batch_norm", outputs=outputs))
    listing.calls = calls
    listing.rewrite(lambda call: _batch_norm_backward(call, reserves))
    return len(reserves)


def _cudnn(listing: CallListing, call: IssuedCall) -> bool:
    """Whether PyTorch chooses cuDNN, as ``_batch_norm_impl_index`` does."""
    read, *weights = call.positional[:5]
    type_ = listing.types[read.value]
    return (
        type_.dtype != "BFLOAT16"
        and all(isinstance(weight, Operand) for weight in weights)
        and len(type_.shape) >= 3
        and type_.shape[0] <= _SAMPLES[call.positional[5]]
        and type_.elements < 1 << 31
    )


def _batch_norm_backward(call: IssuedCall, reserves: dict[str, str]) -> Sequence[IssuedCall] | None:
    if call.operator != "native_batch_norm_backward" or not call.positional[7]:
        return None
    gradient, read, weight, mean, variance, saved_mean, saved, _, epsilon, *_ = call.positional
    reserve = reserves.get(getattr(saved, "value", ""))
    if reserve is None:
        return None
    arguments: list[Any] = [read, gradient, weight, mean, variance, saved_mean, saved, epsilon]
    arguments.append(Operand(reserve, 0, (1,)))
    return [replace(call, operator="cudnn_batch_norm_backward", positional=arguments, freed=())]


def fuse_dropout(listing: CallListing) -> int:
    """Replace dropout by the fused kernel; return the number of dropouts in the forward pass."""
    shares: dict[str, float] = {}
    calls: list[IssuedCall] = []
    rest = listing.calls
    at = 0
    while at < len(rest):
        window = rest[at : at + len(_DRAWN)]
        if _is_dropout(window):
            _, drawn, divided, product = window
            mask, share = divided.outputs[0], dropped_share(drawn)
            shares[mask] = share
            listing.types[mask] = replace(listing.types[mask], dtype="BOOL")
            arguments: list[Any] = [product.positional[0], share, True]
            freed = tuple(name for call in window for name in call.freed)
            outputs, phase = (product.outputs[0], mask), product.phase
            fused = IssuedCall("native_dropout", arguments, outputs, phase=phase, freed=freed)
            calls.append(fused)
            at += len(_DRAWN)
        else:
            calls.append(rest[at])
            at += 1
    listing.calls = calls
    listing.rewrite(lambda call: _dropout_backward(call, shares))
    return len(shares)


def _is_dropout(window: Sequence[IssuedCall]) -> bool:
    """Whether four calls draw a mask and multiply the tensor that the mask is like with it."""
    if tuple(call.operator for call in window) != _DRAWN:
        return False
    like, _, divided, product = window
    read, mask = product.positional
    return (
        isinstance(mask, Operand)
        and mask.value == divided.outputs[0]
        and read.value == like.positional[0].value
    )


def dropped_share(drawn: IssuedCall) -> float:
    """The share of zeros that a call of ``bernoulli_`` draws, as the user wrote it."""
    kept = drawn.positional[1] if len(drawn.positional) > 1 else 0.5
    return round(1 - kept, 12)


def _dropout_backward(call: IssuedCall, shares: dict[str, float]) -> Sequence[IssuedCall] | None:
    masks = [o for o in call.operands if o.value in shares]
    if call.operator != "mul.Tensor" or not masks:
        return None
    gradient, mask = call.positional
    scale = 1.0 / (1.0 - shares[mask.value])
    arguments = [gradient, mask, scale]
    return [replace(call, operator="native_dropout_backward", positional=arguments, freed=())]


def size_bags(listing: CallListing) -> int:
    """Give embedding bags the sizes that a GPU's kernels return; return the number of calls."""
    bags = [call for call in listing.calls if call.name == "_embedding_bag"]
    for call in bags:
        types = listing.types
        _, indices, offsets, *rest = call.positional
        _, bag_of_index, size_of_bag, largest = call.outputs
        mode = rest[1] if len(rest) > 1 else 0
        types[bag_of_index] = replace(types[bag_of_index], shape=types[indices.value].shape)
        types[size_of_bag] = replace(types[size_of_bag], shape=types[offsets.value].shape)
        if mode != _MAX:
            types[largest] = replace(types[largest], shape=(0,))
    return len(bags)


def ask_libraries(listing: CallListing) -> int:
    """Insert the questions before each loss, which copy the targets; return their number."""

    def asked(call: IssuedCall) -> Sequence[IssuedCall] | None:
        if call.operator != "_ctc_loss":
            return None
        scores, targets, *rest = call.positional
        lengths = rest[:3] if len(rest) > 2 else [*rest, 0]
        shape = listing.types[targets.value].shape
        copied = listing.new("targets", "INT32", shape)
        to_host = {"dtype": {"dtype": "int32"}, "device": {"device": "cpu"}}
        copy = Operand(copied, 0, contiguous(shape))
        return [
            IssuedCall("_use_cudnn_ctc_loss", [scores, targets, *lengths], ()),
            IssuedCall("_to_copy", [targets], (copied,), to_host),
            IssuedCall("_use_miopen_ctc_loss", [scores, copy, *lengths], (), freed=(copied,)),
            replace(call, freed=()),
        ]

    return listing.rewrite(asked)
