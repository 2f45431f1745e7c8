"""Many models at once: decomposed in parallel, compared, and held against what is measured.

What is asked of a whole zoo, where :mod:`bricks.session.bench` answers for one model. Nothing is
timed here, so that workers may run beside each other. Must not know how results are shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from queue import SimpleQueue

from bricks.analysis.coverage import ZooCoverage
from bricks.analysis.coverage import coverage as coverage_of
from bricks.decompose.plan import Decomposition, Plan
from bricks.errors import BricksError, StoreError
from bricks.graph.model import Model
from bricks.graph.view import parse_model, without_values
from bricks.measure.graphs import Decomposer
from bricks.predict.cost import CostModel, fit
from bricks.samples.call_overhead import PROBES
from bricks.session.bench import Bench
from bricks.system import Target, physical_cores

# Fewer models than this for each process are decomposed sooner than processes have started.
_WORTH_A_PROCESS = 4


def decompose_all(bench: Bench, models: Sequence[Model], *, processes: int | None = None) -> None:
    """Decompose those of ``models`` that the cache lacks, several at once, and keep the plans.

    ``processes`` work side by side, by default one per physical core, or one alone where there is
    little to do; each with one thread, and its part of the memory. Only this process writes to the
    cache. What cannot be decomposed stays unknown: asking the bench for it raises its error.
    """
    unknown = {model.digest: model for model in models if not bench.knows(model)}
    if processes is None:
        processes = min(physical_cores(), len(unknown) // _WORTH_A_PROCESS)
    processes = min(processes, len(unknown))
    if processes < 2:
        return  # the bench does it when it is asked
    # Here, so that a zoo whose plans are known need not import it.
    from joblib import Parallel, delayed

    what = f"decomposing {len(unknown)} models"
    bench.progress(what, 0.0)
    with ExitStack() as ending:  # no worker stays, which would run beside whatever is timed next
        free = SimpleQueue[Decomposer]()
        for _ in range(processes):
            free.put(ending.enter_context(closing(bench.decomposer(processes))))
        # Threads are enough: they wait for the workers, which have most to do.
        parallel = Parallel(processes, "threading", return_as="generator_unordered", batch_size=1)
        portions = _portions(list(unknown.values()), processes)
        results = parallel(delayed(_decomposed)(free, each) for each in portions)
        try:
            done = 0
            for portion, found in results:
                for decomposition in found:
                    bench.keep(decomposition)
                done += len(portion)
                bench.progress(what, done / len(unknown))
        finally:
            with warnings.catch_warnings():  # of what is not waited for, where this breaks off
                warnings.simplefilter("ignore")
                results.close()


def _decomposed(
    free: SimpleQueue[Decomposer], models: Sequence[Model]
) -> tuple[Sequence[Model], list[Decomposition]]:
    """``models``, and what is found of those that can be decomposed."""
    decompose, found = free.get(), []
    try:
        for model in models:
            with suppress(BricksError):  # whoever asks for it meets it again
                found.append(decompose(model))
    finally:
        free.put(decompose)
    return models, found


def _portions(models: Sequence[Model], processes: int) -> list[list[Model]]:
    """``models`` in the order in which to begin them, and those together that one process takes.

    Those with the largest weights come together, up to half of what falls to a process: it keeps
    the memory that they need, and the others need not have as much. Of all others the one that
    takes longest comes first, so that no process has more to do when the others are done.
    """
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
    alone = sorted(set(range(len(models))) - set(together), key=lambda n: (-efforts[n], n))
    numbers = [together, *([number] for number in alone)]
    return [[models[number] for number in each] for each in numbers if each]


def coverage(bench: Bench, plans: Sequence[Plan], *, target: Target | None = None) -> ZooCoverage:
    """How much of ``plans`` is measured on ``target``, by default this bench's, and what is not.

    Nothing is measured. The plans are those of the target (:meth:`Bench.plan`).
    """
    target = bench.target if target is None else target
    keys = list(dict.fromkeys(key for plan in plans for key in plan.keys))
    results = bench.store.results(target.key, [*keys, *PROBES.values()])
    bricks = bench.store.load_bricks(keys)
    for key in keys:
        if key not in bricks:
            raise StoreError(
                f"the cache {bench.store.path} lacks {key}, which a plan names:"
                " run 'bricks cache verify'"
            )
    return coverage_of(plans, bricks, results, cost_model(bench, target))


def cost_model(bench: Bench, target: Target | None = None) -> CostModel | None:
    """What measuring a brick costs on ``target``; None while too little is measured there."""
    costs = bench.store.costs((bench.target if target is None else target).key)
    bricks = bench.store.load_bricks(list(costs))  # models and probes are none
    return fit([(brick, costs[key]) for key, brick in bricks.items()])
