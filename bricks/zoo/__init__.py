"""The zoo, models that ship with the package; and the resolution of a MODEL argument to files.

Separate so that every command resolves MODEL the same way. Must not know what is inside a model
file: no module of this package reads ONNX.
"""

from bricks.zoo.catalogue import ZooEntry, entries, entry, find, put, zoo_folder

__all__ = ["ZooEntry", "entries", "entry", "find", "put", "zoo_folder"]
