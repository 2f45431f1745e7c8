"""The instruments of a device whose runtime runs ONNX models: small models, loaded as they are.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from bricks.backends.base import Backend, Loaded, Placed, Placement
from bricks.backends.instruments import Instrumented, Instruments, Preparation
from bricks.backends.onnx_instruments.chain import CHAIN, CHAIN_LENGTH, chain
from bricks.backends.onnx_instruments.eviction_read import EVICTION_READ, eviction_read
from bricks.backends.onnx_instruments.input_clamp import InputClamp, Sizes, clamped
from bricks.backends.onnx_instruments.input_signs import InputSigns, Patterns, signed
from bricks.backends.onnx_instruments.reference import REFERENCE, reference


def instruments_of(backend: Backend) -> Instruments:
    """The instruments of the device that a backend uses."""
    return backend.instruments() if isinstance(backend, Instrumented) else OnnxInstruments(backend)


class OnnxInstruments(Instruments):
    """ONNX models that ``backend`` loads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._clamp = InputClamp(self._load)
        self._signs = InputSigns(self._load)

    def reference(self) -> Placed:
        """Alternating matrix products and activations."""
        return self._bound(reference(), REFERENCE)

    def chain(self) -> Placed:
        """Activations of a single number."""
        return self._bound(chain(CHAIN_LENGTH), CHAIN)

    def eviction_read(self, memory: np.ndarray) -> Placed:
        """The largest number of each row."""
        read = self._load(eviction_read(len(memory)), EVICTION_READ)
        return read.place(Placement((0,), (None,)), memory)

    def preparation(self, proto: onnx.ModelProto) -> Preparation:
        """Clamps, then signs."""
        return _Prepared(self._clamp, clamped(proto), self._signs, signed(proto))

    def unload(self) -> None:
        """Unload clamps and signs, of which there is one for each size of an input."""
        self._clamp.unload()
        self._signs.unload()

    def _load(self, model: onnx.ModelProto, key: str) -> Loaded:
        return self._backend.load(model, key=key, optimize=False)

    def _bound(self, model: onnx.ModelProto, key: str) -> Placed:
        """A model of one input and one output, with memory of its own."""
        return self._load(model, key).place(Placement((None,), (None,)), np.zeros(0, np.uint8))


@dataclass(frozen=True, slots=True)
class _Prepared:
    clamp: InputClamp
    sizes: Sizes
    signs: InputSigns
    patterns: Patterns

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[Placed]:
        return (
            *self.clamp.bound(self.sizes, offsets, region),
            *self.signs.bound(self.patterns, offsets, region),
        )
