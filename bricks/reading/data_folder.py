"""Determine the folder of a model's data files: the model file's, or the folder of a link to it.

Must not know the contents of the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import ModelError
from bricks.graph.payload import all_tensors, is_referenced, locate, reference

if TYPE_CHECKING:
    import onnx


def link_data_folder(graph: onnx.GraphProto, link: Path, folder: Path) -> Path:
    """Return the data folder of a model whose ``link`` points to a file in ``folder``.

    A runtime looks for data next to the link. The data there may be links into ``folder``, as in
    the cache of a hub: then the locations in ``graph`` become the names of files in ``folder``.
    Raises :class:`ModelError` if some data are in one folder and some in the other.
    """
    link_folder, renamed = link.absolute().parent, dict[str, str]()
    tensors = [tensor for tensor in all_tensors(graph) if is_referenced(tensor)]
    locations = {reference(tensor).location for tensor in tensors}
    for location in locations:
        if (link_folder / location).exists():
            data = (link_folder / location).resolve()
            inside = data.is_relative_to(folder)
            renamed[location] = str(data.relative_to(folder)) if inside else ""
    if not all(renamed.values()):
        if any(renamed.get(name) or (folder / name).exists() for name in locations):
            raise ModelError(
                f"{link} is a link, and some of its data are beside the link, some beside the file"
                f" that it leads to, in {folder}: put all data into one folder"
            )
        return link_folder
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed.get(entry.value, entry.value)
    return folder


def check_locations(graph: onnx.GraphProto, folder: Path) -> None:
    """Raise :class:`ModelError` for data outside the model's ``folder``, or behind a link."""
    tensors = (tensor for tensor in all_tensors(graph) if is_referenced(tensor))
    for location in sorted({reference(tensor).location for tensor in tensors}):
        locate(folder, location)
