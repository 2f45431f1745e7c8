"""Values of a model's inputs: parsed from options, chosen for a run, and kept with references.

Some inputs are steering values (the target of a Reshape, the branch of an If), for which synthetic
values may be wrong.

Else known values of the metadata are chosen, or synthetic ones: these follow the sketch of an
input, if the metadata has one. There are any number of sets of them, of the same distribution, so
that inputs can change from run to run.

A file of reference values holds inputs, weights and results of a model, the same for every runtime.
Must not know runtimes, what computed references, nor how values are used.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bricks.errors import ModelError, UsageError, first_line
from bricks.graph.model_metadata import known_values, noted_sketches, runtime_value
from bricks.graph.onnx_types import dtype_of
from bricks.graph.payload import value_dtype

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph
    from bricks.graph.synthesis import Pool, Range

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def parse_value(text: str) -> tuple[str, str | np.ndarray]:
    """Split ``NAME=2,3`` into name and text; read ``NAME=@FILE.npy`` as name and array.

    Names may hold ``=``: the last one separates. Raises :class:`UsageError`.
    """
    name, separator, value = text.rpartition("=")
    if not separator or not name or not value:
        raise UsageError(f"not a value: '{text}': give NAME=2,3 or NAME=@FILE.npy")
    if not value.startswith("@"):
        return name, value
    path = Path(value[1:])
    try:
        return name, np.load(path, allow_pickle=False)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise UsageError(f"{path} is not a file of numpy's (.npy): {first_line(exc)}") from exc


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a file of ``numpy.savez``: arrays by input; raises :class:`UsageError`."""
    try:
        arrays = np.load(path, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("it holds one array without a name: save it by numpy.savez")
        with arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except (ValueError, zipfile.BadZipFile) as exc:
        raise UsageError(f"{path} is not a file of numpy's (.npz): {first_line(exc)}") from exc


def literal(name: str, text: str, declared: onnx.TypeProto) -> Any:
    """Parse the numbers in ``text`` as an array of the declared type, and of its shape if any.

    Raises :class:`ModelError` for text that is not a number of that type.
    """
    if declared.WhichOneof("value") != "tensor_type":
        raise ModelError(f"input '{name}' is no tensor: its value cannot be written as numbers")
    tensor = declared.tensor_type
    dtype = dtype_of(tensor.elem_type)
    words = [word.strip() for word in text.split(",")]
    if dtype == "STRING":
        flat = np.array(words, dtype=object)
    else:
        try:
            numbers = [
                _BOOLEANS[word.lower()] if dtype == "BOOL" else float(word) for word in words
            ]
            exact = [int(word) for word in words] if "INT" in dtype else numbers
            with np.errstate(over="raise"):  # a float that does not fit must not become infinite
                flat = np.array(exact).astype(value_dtype(dtype))
            if "INT" in dtype and [int(value) for value in flat] != exact:
                raise OverflowError(f"not within the range of {dtype}")
        except (KeyError, ValueError, ArithmeticError) as exc:
            raise ModelError(
                f"the value given for input '{name}', {text}, is no {dtype.lower()}"
            ) from exc
    dims = tensor.shape.dim if tensor.HasField("shape") else [None]
    if len(dims) == 1:
        return flat
    if not dims and flat.size == 1:
        return flat.reshape(())
    sizes = [dim.dim_value if dim is not None else 0 for dim in dims]
    if sizes and all(sizes) and np.prod(sizes) == flat.size:
        return flat.reshape(sizes)
    raise ModelError(
        f"input '{name}' has {len(dims)} dimensions, and is given {flat.size} numbers:"
        f" give a file ({name}=@FILE.npy)"
    )


class InputMaker(Protocol):
    """Makes the value of an input."""

    def __call__(self, turn: int = 0) -> Any:
        """Return the value in set number ``turn``; a known value is the same in all sets."""


def feeds(
    proto: onnx.ModelProto,
    graph: Graph,
    ranges: Mapping[str, Range],
    pool: Pool,
    prefix: str = "",
) -> dict[str, InputMaker]:
    """Return a function for each input of ``proto`` (as ``graph``) that makes the input's value.

    Synthetic integers lie within ``ranges``; ``prefix`` and the input's name determine them.
    """
    values, sketches = known_values(proto), noted_sketches(proto)

    def made(name: str, turn: int = 0) -> Any:
        if name in values:
            return runtime_value(values[name], graph.types[name])
        of_turn = f"{prefix}{name}/{turn}" if turn else f"{prefix}{name}"
        random = pool.value(of_turn, graph.types[name], ranges.get(name))
        return sketches[name].drawn(random, turn) if name in sketches else random

    return {name: partial(made, name) for name in graph.inputs}


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """Inputs and weights of a model as runtimes get them, and float64 values, all by name.

    ``values`` is empty without a reference.
    """

    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]

    def save(self, file: Path) -> None:
        """Write all arrays to ``file`` (.npz)."""
        arrays: dict[str, Any] = {}
        names: dict[str, list[str]] = {}
        for role in ("inputs", "weights", "values"):
            of_role: Mapping[str, np.ndarray] = getattr(self, role)
            names[role] = list(of_role)
            arrays |= {f"{role}{number}": array for number, array in enumerate(of_role.values())}
        np.savez(file, names=np.frombuffer(json.dumps(names).encode(), np.uint8), **arrays)

    @classmethod
    def load(cls, file: Path) -> ReferenceValues:
        """Read a file of :meth:`save`."""
        with np.load(file, allow_pickle=False) as arrays:
            names = json.loads(arrays["names"].tobytes())
            return cls(
                **{
                    role: {name: arrays[f"{role}{number}"] for number, name in enumerate(of_role)}
                    for role, of_role in names.items()
                }
            )
