"""The folder of a model's data files: that of the model file, or that of a link to it.

Must not know what the data are.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from bricks.errors import ModelError
from bricks.graph.payload import all_tensors, is_referenced, locate, reference


def beside_link(graph: onnx.GraphProto, link: Path, folder: Path) -> Path:
    """The folder of the data of a model that is a link to a file in ``folder``.

    A runtime looks beside the link. The data there may be links too, into the folder of the model's
    own file, as in the cache of a hub: then they are referred to by their names in that folder.
    Raises :class:`ModelError` where some data are in one folder, and some in the other.
    """
    home, moved = link.absolute().parent, dict[str, str]()
    tensors = [tensor for tensor in all_tensors(graph) if is_referenced(tensor)]
    locations = {reference(tensor).location for tensor in tensors}
    for location in locations:
        if (home / location).exists():
            data = (home / location).resolve()
            there = data.is_relative_to(folder)
            moved[location] = str(data.relative_to(folder)) if there else ""
    if not all(moved.values()):
        if any(moved.get(each) or (folder / each).exists() for each in locations):
            raise ModelError(
                f"{link} is a link, and some of its data are beside the link, some beside the file"
                f" that it leads to, in {folder}: put all data into one folder"
            )
        return home
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = moved.get(entry.value, entry.value)
    return folder


def check_places(graph: onnx.GraphProto, folder: Path) -> None:
    """Raise for data outside the model's ``folder``, including data behind a link."""
    places = {reference(tensor).location for tensor in all_tensors(graph) if is_referenced(tensor)}
    for place in sorted(places):
        locate(folder, place)
