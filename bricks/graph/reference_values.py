"""Inputs, weights and reference values of a model in one file, for every runtime the same.

Must not know who computed the values, nor what is compared with them.
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
    """Inputs and weights of a model as runtimes get them, and values in double, all by name.

    ``values`` is empty where there is no reference.
    """

    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]

    def save(self, file: Path) -> None:
        """Write it to ``file`` (.npz)."""
        arrays: dict[str, Any] = {}
        names: dict[str, list[str]] = {}
        for role in ("inputs", "weights", "values"):
            held: Mapping[str, np.ndarray] = getattr(self, role)
            names[role] = list(held)
            arrays |= {f"{role}{number}": each for number, each in enumerate(held.values())}
        np.savez(file, names=np.frombuffer(json.dumps(names).encode(), np.uint8), **arrays)

    @classmethod
    def load(cls, file: Path) -> ReferenceValues:
        """The inverse of :meth:`save`."""
        with np.load(file, allow_pickle=False) as held:
            names = json.loads(held["names"].tobytes())
            return cls(
                **{
                    role: {name: held[f"{role}{number}"] for number, name in enumerate(of_role)}
                    for role, of_role in names.items()
                }
            )
