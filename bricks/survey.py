"""Many models at once: decomposed in parallel, compared, and held against what is measured.

What is asked of a whole zoo, where :mod:`bricks.bench` answers for one model. Nothing is timed
here, so that processes may work beside each other. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

from bricks.bench import Bench
from bricks.decompose.plan import Plan
from bricks.errors import StoreError
from bricks.estimate.cost import CostModel, fit
from bricks.estimate.coverage import ZooCoverage
from bricks.estimate.coverage import coverage as coverage_of
from bricks.graph.model import Model
from bricks.graph.view import parse_model, without_values
from bricks.measure.probes import PROBES
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
    if min(processes, len(unknown)) < 2:
        return  # the bench does it when it is asked
    # What takes long first, so that no process has more to do when the others are done.
    ordered = sorted(unknown.values(), key=_effort, reverse=True)
    decompose = bench.decomposer(processes)
    # Here, so that a zoo whose plans are known need not import it.
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor

    what = f"decomposing {len(ordered)} models"
    bench.progress(what, 0.0)
    try:
        with parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = Parallel(n_jobs=processes, batch_size=1, return_as="generator_unordered")
            results = parallel(delayed(decompose)([model]) for model in ordered)
            for done, found in enumerate(results, start=1):
                for decomposition in found:
                    bench.keep(decomposition)
                bench.progress(what, done / len(ordered))
    except BrokenProcessPool:
        pass  # one was killed, maybe for lack of memory: what it had is decomposed alone, then
    finally:
        # They would wait for more work, beside whatever is timed next.
        get_reusable_executor().shutdown(wait=True)


def _effort(model: Model) -> float:
    """How much there is to do: a megabyte of weights takes as long as a kilobyte of the graph."""
    weights = without_values(parse_model(model.skeleton)).values()
    return len(model.skeleton) + sum(type_.size_bytes for type_ in weights) / 1000


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
