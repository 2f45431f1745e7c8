"""A greedy loop: a decoder generates token by token, with all its inputs and outputs bound.

Keys and values lie in two blocks of memory, which a step reads and writes in turn, so that nothing
is copied between two steps. All memory is kept from one text to the next, as a server keeps it:
the system hands out new memory page by page, when it is written to. Must not know what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bricks.backends.onnxruntime.sessions import at
from bricks.backends.onnxruntime.values import DTYPES, to_value, translated
from bricks.errors import BackendError
from bricks.graph.decoder import IDS, MASK, POSITIONS, Decoder
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    import onnxruntime as ort

    from bricks.graph.containers import ValueType


class GeneratingSession:
    """A session of a decoder; ``types`` are those of one step's inputs and outputs."""

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
        (logits,) = (out for out in session.get_outputs() if out.name == decoder.logits)
        self._logits_dtype, self._vocabulary = DTYPES[logits.type], logits.shape[-1]
        if not isinstance(self._vocabulary, int):
            raise BackendError(f"{decoder.name}: how many tokens there are is left open")
        self._memory: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[list[float], list[float]]:
        """See :class:`~bricks.backends.base.LoadedDecoder`."""
        decoder, clock = self._decoder, time.perf_counter
        shapes = decoder.shapes(batch, 1, prompt_tokens + new_tokens)
        blocks = [
            {
                name: self._reserved(f"{name} {half}", self._typed(name, shapes[name]))
                for name, _ in decoder.cache
            }
            for half in range(2)
        ]
        cached = self._values_in(blocks[1], decoder.shapes(batch, prompt_tokens, 0))
        ids = self._random.integers(0, self._vocabulary, (batch, prompt_tokens))
        runs_s: list[float] = []
        between_s: list[float] = []
        past, tokens = 0, prompt_tokens
        ended = clock()
        for step in range(new_tokens):
            binding = self._session.io_binding()
            self._bind_tokens(binding, ids, past)
            grown = self._values_in(blocks[step % 2], decoder.shapes(batch, 1, past + tokens))
            for before, after in decoder.cache:
                binding.bind_ortvalue_input(before, cached[before])
                binding.bind_ortvalue_output(after, grown[before])
            logit_tokens = 1 if decoder.last_only else tokens
            type_ = TensorType(self._logits_dtype, (batch, logit_tokens, self._vocabulary))
            logits = at(self._reserved(decoder.logits, type_), 0, type_)
            binding.bind_ortvalue_output(decoder.logits, to_value(logits, type_))
            began = clock()
            with translated("generating text"):
                self._session.run_with_iobinding(binding)
            between_s.append(began - ended)
            ended = clock()
            runs_s.append(ended - began)
            ids = logits[:, -1:].argmax(axis=-1)
            past, tokens, cached = past + tokens, 1, grown
        return runs_s, between_s

    def _reserved(self, name: str, type_: TensorType) -> np.ndarray:
        """Bytes for a value of this type: the same as before if these are enough."""
        if len(self._memory.get(name, ())) < type_.size_bytes:
            self._memory[name] = np.zeros(type_.size_bytes, np.uint8)
        return self._memory[name]

    def _typed(self, name: str, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self._types[name].dtype, shape)

    def _values_in(
        self, block: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, ort.OrtValue]:
        """By name, values of these shapes at the beginning of each part of a block."""
        types = {name: self._typed(name, shapes[name]) for name in block}
        return {n: to_value(at(memory, 0, types[n]), types[n]) for n, memory in block.items()}

    def _bind_tokens(self, binding: ort.IOBinding, ids: np.ndarray, past: int) -> None:
        """Bind the tokens ``ids``, their mask and positions, behind ``past`` others."""
        batch, tokens = ids.shape
        values = {IDS: ids, **self._decoder.values(batch, tokens, past)}
        for name in (IDS, MASK, POSITIONS):
            if name in self._decoder.dims:
                type_ = self._typed(name, values[name].shape)
                array = np.ascontiguousarray(values[name], numpy_dtype(type_.dtype))
                binding.bind_ortvalue_input(name, to_value(array, type_))
