"""Many models at once: decomposed in parallel, compared, and held against what is measured.

What is asked of a whole zoo, where :mod:`bricks.bench` answers for one model. Nothing is timed
here, so that processes may work beside each other. Must not know how results are shown.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from bricks.bench import Bench, Options
from bricks.decompose.plan import Decomposition, Plan
from bricks.errors import BricksError, StoreError
from bricks.estimate.cost import CostModel, fit
from bricks.estimate.coverage import ZooCoverage
from bricks.estimate.coverage import coverage as coverage_of
from bricks.graph.model import Model
from bricks.measure.probes import PROBES
from bricks.system import Target, available_memory_bytes, physical_cores

# Fewer models than this for each process are decomposed sooner than processes have started.
_WORTH_A_PROCESS = 4

# Portions of models for each process: so that one which gets the slow ones holds up no other.
_PORTIONS = 2


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
    # Large and small ones dealt to all alike.
    ordered = sorted(unknown.values(), key=lambda model: len(model.skeleton), reverse=True)
    count = min(len(ordered), processes * _PORTIONS)
    portions = [ordered[number::count] for number in range(count)]
    memory_bytes = bench.options.memory_bytes or int(available_memory_bytes() * 0.9)
    options = replace(bench.options, threads=1, memory_bytes=memory_bytes // processes)
    # Here, so that a zoo whose plans are known need not import it.
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor

    what = f"decomposing {len(ordered)} models"
    bench.progress(what, 0.0)
    try:
        with parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = Parallel(n_jobs=processes, batch_size=1, return_as="generator_unordered")
            done = 0
            for found in parallel(delayed(_decomposed)(portion, options) for portion in portions):
                for decomposition in found:
                    bench.keep(decomposition)
                done += 1
                bench.progress(what, done / count)
    except BrokenProcessPool:
        pass  # one was killed, maybe for lack of memory: what it had is decomposed alone, then
    finally:
        # They would wait for more work, beside whatever is timed next.
        get_reusable_executor().shutdown(wait=True)


def _decomposed(models: Sequence[Model], options: Options) -> list[Decomposition]:
    """Those of ``models`` that can be decomposed, in a process that shares nothing."""
    found = []
    with tempfile.TemporaryDirectory(prefix="bricks-") as folder, Bench(folder, options) as bench:
        for model in models:
            try:
                found.append(bench.decompose(model))
            except BricksError:  # the parent meets it again, and says so
                continue
    return found


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
