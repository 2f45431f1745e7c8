"""Gives inputs the signs that they have in the model, before operators that are sensitive to them.

See ``backends/onnx_instruments/input_signs``. The signs are written untimed, in place, and with all threads, like
the step that wrote the numbers. They are others at each run: a processor's branch predictor learns
tens of thousands of signs that come again and again, and no deployed model reads the same input
twice. It must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np
import onnx

from bricks.backends.base import Loaded, Placed, Placement
from bricks.backends.onnx_instruments.sign_model import INPUT_SIGNS, input_signs
from bricks.graph.form import form_of
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

# Loads a model, by its key.
Load = Callable[[onnx.ModelProto, str], Loaded]

# Signs in turn: more than a predictor remembers, in at least two and at most so many patterns.
_SIGNS, _MAX_TURNS = 1 << 18, 16


class InputSigns:
    """The models that write signs, one for each size and pattern, and what they have to write."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._wanted: dict[str, tuple[tuple[int, Sketch] | None, ...]] = {}  # by id
        self._loaded: dict[tuple[int, Sketch], list[Loaded]] = {}

    def register(self, id: str, proto: onnx.ModelProto) -> None:
        """Note that ``proto`` is loaded as ``id``, and which signs its inputs have.

        Recorded calls draw the signs of what they read themselves.
        """
        self._wanted.pop(id, None)
        if form_of(proto).draws_signs:
            return
        patterns = {n: each for n, each in noted_sketches(proto).items() if each.signs_alone}
        if patterns:
            graph = graph_of(proto)
            found = []
            for name in graph.inputs:
                type_, pattern = graph.types[name], patterns.get(name)
                plain = isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements
                found.append((type_.elements, pattern) if plain and pattern else None)
            self._wanted[id] = tuple(found)

    def unload(self) -> None:
        """Unload everything."""
        self._wanted.clear()
        self._loaded.clear()

    def placed(self, id: str, offsets: Sequence[int | None], region: np.ndarray) -> list[Placed]:
        """What to run before ``id``, whose inputs lie at ``offsets`` into ``region``.

        An input without an offset has memory of its own, whose signs are random.
        """
        placed: list[Placed] = []
        for wanted, offset in zip(self._wanted.get(id, ()), offsets, strict=False):
            if wanted is None or offset is None:
                continue
            if wanted not in self._loaded:
                turns = min(_MAX_TURNS, max(2, _SIGNS // wanted[0]))
                models = (input_signs(*wanted, seed) for seed in range(turns))
                self._loaded[wanted] = [self._load(model, INPUT_SIGNS) for model in models]
            there = Placement((offset,), (offset,))
            placed.append(_InTurn([each.place(there, region) for each in self._loaded[wanted]]))
        return placed


class _InTurn:
    """Several that are placed alike, of which each run takes the next."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._next = cycle(placed)

    def sample(self) -> Sample:
        """Run the next one; what it took."""
        return next(self._next).sample()
