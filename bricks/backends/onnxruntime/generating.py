"""A greedy loop: a decoder generates token by token, with all that it reads and writes bound.

Keys and values lie in two blocks of memory, which a step reads and writes in turn, so that nothing
is copied between two steps. All memory is kept from one text to the next, as a server keeps it:
the system hands out new memory page by page, when it is written to. Must not know what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from bricks.backends.onnxruntime.sessions import at
from bricks.backends.onnxruntime.values import DTYPES, to_value, translated
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.decoder import IDS, MASK, POSITIONS, Decoder
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.tensor import TensorType


class GeneratingSession:
    """A session for a decoder; ``types`` are those of one step's inputs and outputs."""

    def __init__(
        self,
        session: ort.InferenceSession,
        decoder: Decoder,
        types: Mapping[str, ValueType],
        weights: Mapping[str, np.ndarray],
    ) -> None:
        self._session, self._decoder = session, decoder
        self._types = {name: t for name, t in types.items() if isinstance(t, TensorType)}
        self._weights = weights  # the session may refer to them
        (shown,) = (each for each in session.get_outputs() if each.name == decoder.logits)
        self._logits_dtype, self._vocabulary = DTYPES[shown.type], shown.shape[-1]
        if not isinstance(self._vocabulary, int):
            raise BackendError(f"{decoder.name}: how many tokens there are is left open")
        self._kept: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[list[float], list[float]]:
        """See :class:`~bricks.backends.base.LoadedDecoder`."""
        decoder, clock = self._decoder, time.perf_counter
        most = prompt_tokens + new_tokens
        shapes = decoder.shapes(batch, 1, most)
        blocks = [
            {
                name: self._memory(f"{name} {half}", self._typed(name, shapes[name]))
                for name, _ in decoder.cache
            }
            for half in range(2)
        ]
        cached = self._bound(blocks[1], decoder.shapes(batch, prompt_tokens, 0))
        words = self._random.integers(0, self._vocabulary, (batch, prompt_tokens))
        runs: list[float] = []
        between: list[float] = []
        past, tokens = 0, prompt_tokens
        ended = clock()
        for number in range(new_tokens):
            binding = self._session.io_binding()
            self._bind_tokens(binding, words, past)
            grown = self._bound(blocks[number % 2], decoder.shapes(batch, 1, past + tokens))
            for before, after in decoder.cache:
                binding.bind_ortvalue_input(before, cached[before])
                binding.bind_ortvalue_output(after, grown[before])
            shown = TensorType(self._logits_dtype, (batch, tokens, self._vocabulary))
            logits = at(self._memory(decoder.logits, shown), 0, shown)
            binding.bind_ortvalue_output(decoder.logits, to_value(logits, shown))
            began = clock()
            with translated("generating text"):
                self._session.run_with_iobinding(binding)
            between.append(began - ended)
            ended = clock()
            runs.append(ended - began)
            words = logits[:, -1:].argmax(axis=-1)
            past, tokens, cached = past + tokens, 1, grown
        return runs, between

    def _memory(self, name: str, type_: TensorType) -> np.ndarray:
        """Bytes for a value of this type, the same as before if they were enough."""
        if len(self._kept.get(name, ())) < type_.size_bytes:
            self._kept[name] = np.zeros(type_.size_bytes, np.uint8)
        return self._kept[name]

    def _typed(self, name: str, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self._types[name].dtype, shape)

    def _bound(
        self, block: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Any]:
        """Values of these shapes at the beginning of each part of a block."""
        found = {}
        for name, memory in block.items():
            type_ = self._typed(name, shapes[name])
            found[name] = to_value(at(memory, 0, type_), type_)
        return found

    def _bind_tokens(self, binding: Any, words: np.ndarray, past: int) -> None:
        batch, tokens = words.shape
        held = {IDS: words, **self._decoder.values(batch, tokens, past)}
        for name in (IDS, MASK, POSITIONS):
            if name in self._decoder.dims:
                type_ = self._typed(name, held[name].shape)
                numbers = np.ascontiguousarray(held[name], numpy_dtype(type_.dtype))
                binding.bind_ortvalue_input(name, to_value(numbers, type_))
