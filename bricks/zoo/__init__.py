"""The zoo, models that ship with the package; and the resolution of a MODEL argument to files.

Separate so that every command resolves MODEL the same way. Must not know what is inside a model
file: no module of this package reads ONNX.
"""

from bricks.zoo.catalogue import (
    DECODER,
    DECODERS,
    PROGRAMS,
    ZooEntry,
    decoders,
    entries,
    entry,
    find,
    is_entry,
    programs,
    put,
    zoo_folder,
)
from bricks.zoo.trainings import find_training, trainings

__all__ = [
    "DECODER", "DECODERS", "PROGRAMS", "ZooEntry", "decoders", "entries", "entry", "find",
    "find_training", "is_entry", "programs", "put", "trainings", "zoo_folder",
]  # fmt: skip
