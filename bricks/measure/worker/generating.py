"""Requests to generate text really, with a decoder that is loaded for any number of tokens.

Must not know what is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bricks.backends.base import Backend, Generating, Generator
from bricks.errors import BackendError, WorkerError
from bricks.graph.decoder import Decoder
from bricks.graph.view import parse_model
from bricks.measure.protocol import unpack

Facts = dict[str, Any]


class GenerationRequests:
    """Answers requests with a decoder that ``backend`` loads; ``name`` is the runtime's."""

    def __init__(self, backend: Callable[[], Backend], name: Callable[[], str]) -> None:
        self._backend, self._name = backend, name
        self._generating: Generating | None = None

    def do_load_decoder(self, model: str, decoder: Facts) -> Facts:
        """Load a decoder, of which ``model`` is a step."""
        backend: Any = self._backend()
        if not hasattr(backend, "generating"):
            raise BackendError(f"{self._name()} cannot be made to generate text: leave out --check")
        generator: Generator = backend
        self._generating = None
        self._generating = generator.generating(
            parse_model(unpack(model)), Decoder.from_json(decoder)
        )
        return {}

    def do_generate(self, batch: int, prompt_tokens: int, new_tokens: int) -> Facts:
        """Generate texts once: seconds of the model's steps, and of what is before each."""
        if self._generating is None:
            raise WorkerError("no decoder is loaded")
        steps_s, between_s = self._generating.generate(batch, prompt_tokens, new_tokens)
        return {"steps_s": list(steps_s), "between_s": list(between_s)}
