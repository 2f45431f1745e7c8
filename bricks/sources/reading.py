"""Reads what a user names as a model: a file, a zoo name, a program, or a model in memory.

Must not know what is done with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import UsageError
from bricks.graph.model import Model
from bricks.graph.read import read_model
from bricks.sources.programs import names_program, read_program
from bricks.system import Runtime
from bricks.zoo import find

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph


def read(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    name: str | None,
    batch: int | None,
    shapes: Mapping[str, Sequence[int | None]] | None,
    values: Mapping[str, Any] | None,
    runtime: Runtime,
    seed: int,
    folder: Callable[[], Path],
) -> Model:
    """The model, with its open dimensions fixed; see :meth:`Bench.read`.

    A program is recorded for ``runtime`` from ``seed``; a model in memory is written to a new
    ``folder``.
    """
    if isinstance(model, str) and names_program(model):
        if shapes or values:
            raise UsageError(f"{model} makes its own inputs: give it a batch size alone")
        return read_program(
            model, runtime=runtime.backend, threads=runtime.threads, seed=seed, batch=batch,
            name=name,
        )  # fmt: skip
    if isinstance(model, str | Path):
        found = find(str(model))
        if len(found) != 1:
            raise UsageError(f"{model} holds {len(found)} models: name one of them")
        title, path = found[0]
    else:
        # Here: to predict what is measured, nothing more need be imported.
        from bricks.graph.in_memory import proto_of, title_of, write_model

        proto = proto_of(model)
        title = title_of(proto)
        path = write_model(proto, folder(), title)
    return read_model(
        path, batch=batch, shapes=shapes, values=values, name=title if name is None else name
    )
