"""Operators by the words of users: lists, single operators of a list, ONNX files and programs.

Must not know how operators are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bricks.decompose.titles import shapes
from bricks.errors import ModelError, UsageError, suggestion
from bricks.graph.form import operator_title
from bricks.graph.payload import numpy_dtype
from bricks.graph.tensor import TensorType
from bricks.graph.view import parse_model
from bricks.samples.measurement import Measurement
from bricks.sources import Function, find_files
from bricks.studies.numerics.deepbench import KERNELS, deepbench, operator_of
from bricks.studies.numerics.operator import OperatorCase, bytes_of
from bricks.studies.numerics.results import Work
from bricks.zoo import entries, is_entry

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.store import Reading
    from bricks.system import Target

DEEPBENCH, ZOO = "deepbench", "zoo"
LISTS = (DEEPBENCH, ZOO)

# The default number of the zoo's costliest bricks.
TOP = 100


@dataclass(frozen=True, slots=True)
class ZooSource:
    """A store with measurements of the zoo on ``target``; its ``top`` costliest bricks are listed.

    ``granularity`` is the granularity of its plans.
    """

    known: Reading
    target: Target
    granularity: str
    top: int = TOP


def operators_named(word: str, zoo: ZooSource | None) -> list[OperatorCase]:
    """The operators that ``word`` names: a list, one of a list, an ONNX file or a program.

    ``zoo`` is the source of the list of that name; None if no known system has measured it. Raises
    :class:`UsageError` for a word that names nothing, with the nearest, and :class:`ModelError` for
    a file that is not there.
    """
    if word == DEEPBENCH:
        return deepbench()
    if word == ZOO:
        if zoo is None:
            raise UsageError(
                "no system with measurements of the zoo is known: import some, or give a file"
            )
        return costliest(zoo)
    kernels = {kernel.name: kernel for kernel in KERNELS}
    if word in kernels:
        return [operator_of(kernels[word])]
    if is_entry(word):
        return [OperatorCase(word, word, program=Function(word))]
    if Path(word).suffix.lower() == ".onnx" or Path(word).exists():
        return [OperatorCase(f.title, str(f.path), onnx=f.path) for f in find_files(word)]
    raise UsageError(
        f"no list, operator or file is called {word!r}: {suggestion(word, [*LISTS, *kernels])}"
    )


def costliest(zoo: ZooSource) -> list[OperatorCase]:
    """The bricks that take longest when each model of the zoo runs once, the costliest first.

    Raises :class:`ModelError` if the target has measured none of them.
    """
    of_zoo = {entry.name for entry in entries()}
    times: dict[str, int] = {}
    for name, usage in zoo.known.plans.usage(zoo.target.key, zoo.granularity):
        if name in of_zoo:
            for key, used in usage.items():
                times[key] = times.get(key, 0) + used.occurrences
    results = zoo.known.measurements.results(zoo.target.key, sorted(times))
    total_s = {
        key: times[key] * result.latency_s
        for key, result in results.items()
        if isinstance(result, Measurement)
    }
    if not total_s:
        raise ModelError(f"no brick of the zoo is measured on {zoo.target.system.name}")
    chosen = sorted(total_s, key=lambda key: (-total_s[key], key))[: zoo.top]
    bricks = zoo.known.plans.load_bricks(chosen)
    return [_of_brick(bricks[key], zoo.target) for key in chosen]


def _of_brick(brick: Brick, target: Target) -> OperatorCase:
    operators = "+".join(operator_title(name) for name in brick.operators)
    types = [*brick.inputs.values(), *brick.weights.values(), *brick.outputs.values()]
    return OperatorCase(
        f"{operators}_{brick.key.removeprefix('b1-')[:8]}",
        f"brick {brick.key} of the zoo, by its latency on {target.system.name}: {shapes(brick)}",
        onnx=parse_model(brick.model),
        values={
            name: _array(brick.inputs[name], example) for name, example in brick.examples.items()
        },
        work=Work(brick.flops, bytes_of(types)),
    )


def _array(type_: object, values: Sequence[float]) -> np.ndarray:
    assert isinstance(type_, TensorType), "what steers is a tensor"
    return np.array(values).astype(numpy_dtype(type_.dtype)).reshape(type_.shape)
