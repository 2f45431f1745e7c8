"""Inputs, weights and reference values of a model in one file, the same for every runtime.

Must not know what computed the values, nor which results are compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """Inputs and weights of a model as runtimes get them, and float64 values, all by name.

    ``values`` is empty without a reference.
    """

    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]

    def save(self, file: Path) -> None:
        """Write all arrays to ``file`` (.npz)."""
        arrays: dict[str, Any] = {}
        names: dict[str, list[str]] = {}
        for role in ("inputs", "weights", "values"):
            of_role: Mapping[str, np.ndarray] = getattr(self, role)
            names[role] = list(of_role)
            arrays |= {f"{role}{number}": array for number, array in enumerate(of_role.values())}
        np.savez(file, names=np.frombuffer(json.dumps(names).encode(), np.uint8), **arrays)

    @classmethod
    def load(cls, file: Path) -> ReferenceValues:
        """Read a file of :meth:`save`."""
        with np.load(file, allow_pickle=False) as arrays:
            names = json.loads(arrays["names"].tobytes())
            return cls(
                **{
                    role: {name: arrays[f"{role}{number}"] for number, name in enumerate(of_role)}
                    for role, of_role in names.items()
                }
            )
