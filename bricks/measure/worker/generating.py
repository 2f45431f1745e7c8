"""Handles requests to generate text, with a decoder that is loaded for any number of tokens.

Must not know any prediction.
"""

from __future__ import annotations

from bricks.backends.base import LoadedDecoder, TextGenerator
from bricks.errors import WorkerError
from bricks.graph.view import parse_model
from bricks.measure.protocol.serving import GenerateText, LoadDecoder, TextTimes
from bricks.measure.worker.runtime import WorkerRuntime


class GenerationRequests:
    """Generates text with a decoder that the backend of ``runtime`` loads."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._generating: LoadedDecoder | None = None

    def load(self, request: LoadDecoder) -> None:
        """Load a decoder; the one before is dropped."""
        generator = self._runtime.capable(TextGenerator)
        self._generating = None
        self._generating = generator.load_decoder(parse_model(request.model), request.decoder)

    def generate(self, request: GenerateText) -> TextTimes:
        """Generate a batch of texts; seconds of each step, and between steps."""
        if self._generating is None:
            raise WorkerError("no decoder is loaded")
        steps_s, between_s = self._generating.generate(
            request.batch, request.prompt_tokens, request.new_tokens
        )
        return TextTimes(tuple(steps_s), tuple(between_s))
