"""The zoo: models that ship with the package, by name, and recipes that build them.

Must not know what is inside a model file: no module of this package reads ONNX.
"""

from bricks.zoo.catalogue import (
    DECODER,
    DECODERS,
    PROGRAMS,
    ZooEntry,
    decoders,
    entries,
    entry,
    find_training,
    is_entry,
    programs,
    put,
    trainings,
    zoo_folder,
)

__all__ = [
    "DECODER", "DECODERS", "PROGRAMS", "ZooEntry", "decoders", "entries", "entry",
    "find_training", "is_entry", "programs", "put", "trainings", "zoo_folder",
]  # fmt: skip
