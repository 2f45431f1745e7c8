"""The instruments of a device whose runtime runs ONNX models: small models that it loads.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from bricks.backends.base import Backend, BindableModel, Binding, BoundModel
from bricks.backends.instruments import Instrumented, Instruments, Preparation
from bricks.backends.onnx_instruments import models
from bricks.backends.onnx_instruments.input_clamp import clamps
from bricks.backends.onnx_instruments.input_signs import signs

if TYPE_CHECKING:
    import onnx

    from bricks.backends.onnx_instruments.input_overwrites import InputOverwrite
    from bricks.units.sample import Sample


def instruments_of(backend: Backend) -> Instruments:
    """The instruments of the device that a backend uses."""
    return backend.instruments() if isinstance(backend, Instrumented) else OnnxInstruments(backend)


class OnnxInstruments(Instruments):
    """ONNX models that ``backend`` loads without optimising them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._overwrites: dict[InputOverwrite, Sequence[BindableModel]] = {}

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """The largest number of each row."""
        read = self._load(models.eviction_read(len(memory)), models.EVICTION_READ)
        return read.bind(Binding((0,), (None,)), memory)

    def preparation(self, proto: onnx.ModelProto) -> Preparation:
        """Clamps, then signs."""
        return _Overwriting(self, [*clamps(proto).items(), *signs(proto).items()])

    def unload(self) -> None:
        """Unload all models that overwrite inputs."""
        self._overwrites.clear()

    def loaded(self, overwrite: InputOverwrite) -> Sequence[BindableModel]:
        """The models of ``overwrite``, which are loaded once."""
        if overwrite not in self._overwrites:
            self._overwrites[overwrite] = [
                self._load(model, overwrite.key) for model in overwrite.models()
            ]
        return self._overwrites[overwrite]

    def _load(self, model: onnx.ModelProto, key: str) -> BindableModel:
        return self._backend.load(model, key=key, optimize=False)


@dataclass(frozen=True, slots=True)
class _Overwriting:
    """The overwrites of a brick's inputs, each with the position of its input, in order."""

    instruments: OnnxInstruments
    overwrites: Sequence[tuple[int, InputOverwrite]]

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """See :class:`Preparation`: the synthetic values of inputs without an offset stay."""
        return [*self._bound(offsets, region)]

    def _bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Iterator[BoundModel]:
        for position, overwrite in self.overwrites:
            offset = offsets[position]
            if offset is not None:
                in_place = Binding((offset,), (offset,))
                loaded = self.instruments.loaded(overwrite)
                bound = [model.bind(in_place, region) for model in loaded]
                yield bound[0] if len(bound) == 1 else _InTurn(bound)


class _InTurn:
    """Models bound to the same memory, which take turns."""

    def __init__(self, bound: Sequence[BoundModel]) -> None:
        self._turns = cycle(bound)

    def sample(self) -> Sample:
        """Run the next model."""
        return next(self._turns).sample()
