"""Batches of models, decomposed in parallel: nothing is timed meanwhile.

Must not know what their plans are for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from bricks.errors import BricksError
from bricks.system import physical_cores

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition
    from bricks.graph.model import Model
    from bricks.measure.graphs import Decomposer
    from bricks.session.workspace import Workspace

# With fewer models than this per process, decomposing them takes less time than starting processes.
_WORTH_A_PROCESS = 4


def decompose_all(
    workspace: Workspace, models: Sequence[Model], *, processes: int | None = None
) -> None:
    """Decompose the ``models`` without a plan in the cache, in parallel, and store their plans.

    Runs ``processes`` worker processes, by default one per physical core, or a single one if there
    is little to do; each has one thread, and its part of the memory. Only this process writes to
    the cache. Errors are not reported: asking for the plan of a model that failed raises its error.
    """
    unknown = {model.digest: model for model in models if not workspace.plans.knows(model)}
    if processes is None:
        processes = min(physical_cores(), len(unknown) // _WORTH_A_PROCESS)
    processes = min(processes, len(unknown))
    if processes < 2:
        return  # the workspace decomposes it on request
    # Imported here, since a zoo whose plans are known does not need it.
    from joblib import Parallel, delayed

    from bricks.measure.graphs import Decomposer

    what = f"decomposing {len(unknown)} models"
    workspace.progress(what, 0.0)
    with ExitStack() as ending:  # ends all workers, which would disturb later timings
        free = SimpleQueue[Decomposer]()
        for _ in range(processes):
            free.put(ending.enter_context(closing(workspace.plans.decomposer(processes))))
        # Threads suffice: they wait for the workers, which do most of the work.
        parallel = Parallel(processes, "threading", return_as="generator_unordered", batch_size=1)
        portions = _portions(list(unknown.values()), processes)
        results = parallel(delayed(_decomposed)(free, portion) for portion in portions)
        try:
            done = 0
            for portion, decompositions in results:
                for decomposition in decompositions:
                    workspace.plans.keep(decomposition)
                done += len(portion)
                workspace.progress(what, done / len(unknown))
        finally:
            with warnings.catch_warnings():  # of unawaited results, if the loop is interrupted
                warnings.simplefilter("ignore")
                results.close()


def _decomposed(
    free: SimpleQueue[Decomposer], models: Sequence[Model]
) -> tuple[Sequence[Model], list[Decomposition]]:
    """``models``, and the decompositions of all that can be decomposed."""
    decompose, decompositions = free.get(), []
    try:
        for model in models:
            with suppress(BricksError):  # a later request for the model raises it again
                decompositions.append(decompose(model))
    finally:
        free.put(decompose)
    return models, decompositions


def _portions(models: Sequence[Model], processes: int) -> list[list[Model]]:
    """``models`` in the order of their start, in groups of one process each.

    The models with the largest weights form one group, up to half of a process's share of the work:
    that process keeps the memory that they need, and the others need less. The other models start
    in order of decreasing duration, so that the processes end at about the same time.
    """
    from bricks.graph.view import parse_model, without_values

    types = [without_values(parse_model(model.skeleton)).values() for model in models]
    sizes = [[type_.size_bytes for type_ in each] for each in types]
    # A megabyte of weights takes as long as a kilobyte of the graph.
    efforts = [len(m.skeleton) + sum(each) / 1000 for m, each in zip(models, sizes, strict=True)]
    most, together = sum(efforts) / processes / 2, list[int]()
    for number in sorted(range(len(models)), key=lambda n: max(sizes[n], default=0), reverse=True):
        most -= efforts[number]
        if most < 0:
            break
        together.append(number)
    others = sorted(set(range(len(models))) - set(together), key=lambda n: (-efforts[n], n))
    numbers = [together, *([number] for number in others)]
    return [[models[number] for number in each] for each in numbers if each]
