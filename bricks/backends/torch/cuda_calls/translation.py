"""Translates a recorded program by a table of rules, and says which of them applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from bricks.backends.programs import TranslatedProgram
from bricks.backends.torch.cuda_calls.attention import fuse_attention
from bricks.backends.torch.cuda_calls.layers import (
    ask_libraries,
    fuse_dropout,
    fuse_rms_norm,
    size_bags,
    use_cudnn,
)
from bricks.backends.torch.cuda_calls.listing import (
    CallListing,
    IssuedCall,
    listing_of,
    settle,
    write,
)
from bricks.backends.torch.cuda_calls.optimizers import update_lists
from bricks.graph.call import INFERENCE
from bricks.graph.host_calls import note_host_calls
from bricks.graph.program import origin_of

_CPU, _GPU = {"device": "cpu"}, {"device": "cuda"}

# Operators of processors alone, for which there is no rule.
_PROCESSOR_ONLY: Mapping[str, str] = {
    "mkldnn_rnn_layer": "a recurrent layer, which cuDNN runs on a GPU",
    "mkldnn_rnn_layer_backward": "a recurrent layer, which cuDNN runs on a GPU",
    "unsafe_split.Tensor": "a cell of a recurrent layer, which cuDNN runs on a GPU",
    "_scaled_dot_product_flash_attention_for_cpu": "attention that no fused kernel takes on a GPU",
}


def put_on_gpu(listing: CallListing) -> int:
    """Let calls create their tensors on the GPU; return the number of calls."""

    def on_gpu(call: IssuedCall) -> list[IssuedCall] | None:
        if _CPU not in [*call.positional, *call.named.values()]:
            return None
        return [call.with_arguments(lambda each: dict(_GPU) if each == _CPU else each)]

    return listing.rewrite(on_gpu)


@dataclass(frozen=True, slots=True)
class TranslationRule:
    """Rewrites calls: ``apply`` returns the number of those that it changed, ``reason`` says why.

    The reason is PyTorch's own choice on a GPU, as its dispatcher or its Python code makes it.
    """

    title: str
    reason: str
    apply: Callable[[CallListing], int]


RULES: tuple[TranslationRule, ...] = (
    TranslationRule(
        "batch norm by cuDNN",
        "PyTorch gives cuDNN inputs of three dimensions or more with weights and statistics",
        use_cudnn,
    ),
    TranslationRule(
        "attention in one kernel",
        "cuDNN computes it in half precision, memory-efficient kernels in float32 or with a mask",
        fuse_attention,
    ),
    TranslationRule(
        "root-mean-square norm in one kernel",
        "CUDA has a fused kernel where input and weights are of one type",
        fuse_rms_norm,
    ),
    TranslationRule(
        "optimiser updates lists of parameters",
        "PyTorch's optimisers prefer calls of lists where all parameters are on a GPU",
        update_lists,
    ),
    TranslationRule(
        "dropout in one kernel",
        "PyTorch draws and applies masks at once where the input is on a GPU",
        fuse_dropout,
    ),
    TranslationRule(
        "embedding bags",
        "the kernels keep the bag of each index, which the processor's need not",
        size_bags,
    ),
    TranslationRule("tensors on the GPU", "what is created there says so", put_on_gpu),
    TranslationRule(
        "questions before CTC loss",
        "PyTorch asks cuDNN and MIOpen whether they take the targets, the latter on the host",
        ask_libraries,
    ),
)


def translated(proto: onnx.ModelProto) -> TranslatedProgram:
    """Translate a program recorded on the processor into the calls that CUDA makes.

    Raises :class:`~bricks.errors.ModelError` for a model that is no recorded program.
    """
    origin = origin_of(proto)
    listing = listing_of(proto, training=origin is not None and origin.kind != INFERENCE)
    counts = [(rule, rule.apply(listing)) for rule in RULES]
    settle(listing)
    notes = [f"{rule.title}: {count} calls" for rule, count in counts if count]
    program = write(listing, proto)
    note_host_calls(program)
    operators = Counter(call.operator for call in listing.calls)
    untranslated = tuple(
        f"{count} call{'' if count == 1 else 's'} of {operator} ({meaning})"
        for operator, meaning in _PROCESSOR_ONLY.items()
        if (count := operators[operator])
    )
    return TranslatedProgram(program, tuple(notes), untranslated)
