"""Text that decoders generate: times to the first and to further tokens, from bricks of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.studies.generation.options import GenerationOptions
from bricks.studies.offer import StudyOffer, StudyPage

if TYPE_CHECKING:
    from bricks.studies.generation.study import GenerationStudy


def _study() -> type[GenerationStudy]:
    from bricks.studies.generation.study import GenerationStudy

    return GenerationStudy


def _decoders() -> Sequence[str]:
    """The decoders of the zoo."""
    from bricks.zoo import decoders

    return [decoder.name for decoder in decoders()]


OFFER = StudyOffer(
    name="llm",
    help="""\
    Predict text that a decoder generates token by token: latencies of tokens, rates, and memory.

    Steps of a few lengths of the cache are recomposed from bricks, and missing bricks are measured
    first. docs/guides/llm.md says what is assumed. Example: bricks llm decoder_llama
    --prompt-tokens 128 --new-tokens 64 --threads 1
    """,
    options=GenerationOptions,
    load=_study,
    of_models=True,
    page=StudyPage(
        path="/llm",
        question="How fast does an LLM generate text?",
        fields={
            "model": "Model",
            "prompt_tokens": "Tokens of the prompt",
            "new_tokens": "New tokens",
            "batch": "Texts at once",
            "on": "System",
        },
        subjects=_decoders,
    ),
)
