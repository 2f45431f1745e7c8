"""The zoo: models that ship with the package, and how a MODEL argument becomes files.

Here so that every command reads MODEL the same way. Must not know what is inside a model file:
nothing in this room reads ONNX.
"""

from bricks.zoo.catalogue import ZooEntry, entries, entry, find, put, zoo_folder

__all__ = ["ZooEntry", "entries", "entry", "find", "put", "zoo_folder"]
