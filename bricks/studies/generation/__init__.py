"""Text that decoders generate: times to the first and to further tokens, from bricks of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.studies.generation.options import LlmOptions
from bricks.studies.study import StudyOffer, StudyPage

if TYPE_CHECKING:
    from bricks.studies.generation.study import LlmStudy


def _study() -> type[LlmStudy]:
    from bricks.studies.generation.study import LlmStudy

    return LlmStudy


def _decoders() -> Sequence[str]:
    """Published architectures, and the decoders of the zoo."""
    from bricks.architectures.published import PUBLISHED
    from bricks.zoo import decoders

    return [*PUBLISHED, *(decoder.name for decoder in decoders())]


def _is_architecture(word: str) -> bool:
    """Whether ``word`` is a size such as ``7B``, or means a published architecture."""
    from bricks.architectures.published import architecture

    return architecture(word) is not None


OFFER = StudyOffer(
    name="llm",
    help="""\
    Predict text that a decoder makes token by token: first token, tokens a second, memory.

    MODEL is a size or a published architecture, whose decoder is made without weights, or a decoder
    of yours. Missing bricks are measured first. docs/guides/llm.md says what is assumed.
    Example: bricks llm 7B --quant int4 --prompt 512 --new 128 --batch 1,8
    """,
    options=LlmOptions,
    load=_study,
    of_models=True,
    page=StudyPage(
        path="/llm",
        question="How fast does an LLM generate text?",
        fields={
            "model": "Model",
            "quant": "Quantised weights",
            "prompt": "Prompt tokens",
            "new": "New tokens",
            "batch": "Texts at once",
            "tensor_parallel": "GPUs",
            "on": "System",
        },
        subjects=_decoders,
        accepts=_is_architecture,
    ),
)
