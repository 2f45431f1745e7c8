"""Models in memory: an ``onnx.ModelProto``, or a graph of onnx-graphsurgeon.

Must not know who made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.sources.files import OnnxFile

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph

    from bricks.sources.source import ReadOptions, ReadResult


@dataclass(frozen=True, slots=True)
class InMemory:
    """A model object in memory, which is written to a new ``folder`` and read from there."""

    model: onnx.ModelProto | Graph
    folder: Callable[[], Path]
    word: str = ""

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """The model, its open dimensions fixed as ``options`` say."""
        # Here: to predict what is measured, nothing more need be imported.
        from bricks.graph.in_memory import proto_of, title_of, write_model

        proto = proto_of(self.model)
        title = title_of(proto)
        yield from OnnxFile(self.word, title, write_model(proto, self.folder(), title)).open(
            options
        )
