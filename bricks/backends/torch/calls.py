"""Calls of PyTorch in a row, timed as a whole.

Must not know what they are run for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bricks.units.sample import Sample

Tensors = Sequence[torch.Tensor]
Attributes = Mapping[str, Any]
Operator = Callable[[Tensors, Attributes], torch.Tensor]

# An operator, its attributes, and the names of what it reads and makes.
Call = tuple[Operator, Attributes, Sequence[str], str]


class Calls:
    """Calls on ``values`` by name; each makes a value, in fresh memory."""

    def __init__(self, calls: Sequence[Call], values: Mapping[str, torch.Tensor]) -> None:
        self._calls, self._values = calls, values

    def sample(self) -> Sample:
        """Run all once; what it took."""
        values = dict(self._values)
        start = time.perf_counter_ns()
        for operator, attributes, inputs, output in self._calls:
            values[output] = operator([values[name] for name in inputs], attributes)
        return Sample((time.perf_counter_ns() - start) * 1e-9)
