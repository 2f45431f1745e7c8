"""Which layers models consist of, and how they repeat within and across models.

A layer is a node of the ONNX graph; two layers are the same if their bricks are, at granularity 1:
operator, attributes, shapes and types agree, values of weights do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

# Layers that pass on their input under another shape. Exporters add them where another
# format has an attribute (a dense layer that flattens), and drop them where it has a layer.
SHAPE_ONLY = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"})


@dataclass(frozen=True, slots=True)
class Layers:
    """``types[i]`` is the operator of unique layer ``i``; ``models`` names layers in order."""

    types: tuple[str, ...] = ()
    models: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Layers of all models."""
        return sum(map(len, self.models.values()))

    @property
    def unique(self) -> int:
        """Different layers in all models together."""
        return len(self.types)

    @property
    def shape_only(self) -> int:
        """Layers of all models that only change a shape."""
        kinds = Counter(self.types[i] for of in self.models.values() for i in of)
        return sum(n for kind, n in kinds.items() if kind in SHAPE_ONLY)

    def unique_share(self, name: str) -> float:
        """Different layers of a model over all of its layers."""
        return len(set(self.models[name])) / len(self.models[name])

    def repeated_types(self, names: Sequence[str]) -> Counter[str]:
        """How many layers of each operator have an equal before them, in these models together."""
        repeated: Counter[str] = Counter()
        seen: set[int] = set()
        for name in names:
            for layer in self.models[name]:
                if layer in seen:
                    repeated[self.types[layer]] += 1
                seen.add(layer)
        return repeated


def jaccard(one: Set[int], other: Set[int]) -> float:
    """The size of the intersection over that of the union; 1 for two empty sets."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


def grid(layers: Layers, names: Sequence[str]) -> list[list[float]]:
    """Jaccard similarity of every two models' layers."""
    sets = [set(layers.models[name]) for name in names]
    return [[jaccard(one, other) for other in sets] for one in sets]
