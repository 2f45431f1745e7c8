"""Requests to run walks: warms up, runs the passes that count, and observes the machine meanwhile.

Must not know of the store, of how walks are chosen, or of why something is run.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

from bricks.backends.programs import Recorder
from bricks.measure.protocol.walking import RunWalk, TimeReference, WalkConditions, Walked
from bricks.measure.worker.condition_watch import ConditionWatch
from bricks.measure.worker.fused_runs import FusedSteps
from bricks.measure.worker.load_server import LoadServer
from bricks.measure.worker.loaded_pieces import BoundPiece
from bricks.measure.worker.passes import (
    Pass,
    allocating,
    announced,
    at_once,
    ending,
    evicting,
    one_by_one,
)
from bricks.measure.worker.walk_state import WalkState
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class WalkRequests:
    """Runs the steps that the pieces of ``state`` are bound as."""

    state: WalkState

    def time_reference(self, request: TimeReference) -> float:
        """Seconds of the reference workload now."""
        return self.state.instruments.reference.now_s()

    def run(self, request: RunWalk) -> Walked:
        """Run a walk; see the request."""
        names = [name for name, _ in request.steps]
        steps = [self.state.pieces.steps[name] for name in names]
        joint = None if request.announce or request.memory else self._joint(request, names)
        one_pass = self._pass(request, steps, joint)
        self.state.pieces.refill(request.region_bytes)
        whole = True
        if steps and not request.announce:
            one_pass, whole = self._evicting(request, joint, one_pass)
        taken, idle_s, conditions = self._sampled(request, steps, one_pass)
        columns = list(zip(*taken, strict=True)) or [()] * len(steps)
        timed = [wanted for _, wanted in request.steps]
        return Walked(
            tuple(of if wanted else () for of, wanted in zip(columns, timed, strict=True)),
            conditions,
            eviction_short=not whole,
            apart=tuple(n for n, name in enumerate(names) if joint and name in joint.apart),
            idle_s=tuple(idle_s),
        )

    def _joint(self, request: RunWalk, names: Sequence[str]) -> FusedSteps | None:
        bound = {name: step.bound for name, step in self.state.pieces.steps.items()}
        return self.state.joints.of(
            self.state.runtime.backend, bound, names, request.eviction_bytes
        )

    def _pass(
        self, request: RunWalk, steps: Sequence[BoundPiece], joint: FusedSteps | None
    ) -> Pass:
        """A pass over the steps, without what evicts the caches before it."""
        if joint is not None:
            return at_once(joint, [name for name, _ in request.steps], steps)
        runs = [
            step.runner(sampled=wanted and not request.announce)
            for step, (_, wanted) in zip(steps, request.steps, strict=True)
        ]
        end = None
        if request.memory:
            recorder = self.state.runtime.capable(Recorder)
            runs, end = allocating(recorder, runs, request.memory)
        one_pass = announced(runs, self.state.announce) if request.announce else one_by_one(runs)
        return one_pass if end is None else ending(one_pass, end)

    def _evicting(
        self, request: RunWalk, joint: FusedSteps | None, one_pass: Pass
    ) -> tuple[Pass, bool]:
        """The pass with the read that evicts the caches; whether there is memory for all of it."""
        size_bytes = request.eviction_bytes if joint is None else joint.eviction_bytes
        if not size_bytes:
            return one_pass, True
        read, whole = self.state.instruments.evictor.reader(size_bytes)
        return evicting(read, one_pass), whole

    def _sampled(
        self, request: RunWalk, steps: Sequence[BoundPiece], one_pass: Pass
    ) -> tuple[list[list[Sample]], list[float], WalkConditions]:
        """The samples of each pass that counts, idle seconds before each, and the conditions."""
        watch = ConditionWatch(
            self.state.runtime,
            self.state.instruments,
            announced=request.announce or not steps,
            parallel=any(step.parallel for step in steps),
        )
        watch.before()
        if request.announce:
            self.state.warmth.rehearse(request.steps, one_pass)
        else:
            self.state.warmth.warm_up(request.steps, one_pass)
        gc.disable()
        watch.begin()
        try:
            taken, idle_s = self._passes(request, one_pass)
        finally:
            gc.enable()
        return taken, idle_s, watch.end()

    def _passes(self, request: RunWalk, one_pass: Pass) -> tuple[list[list[Sample]], list[float]]:
        if request.served_at is None:
            return [one_pass() for _ in range(request.passes)], []
        return LoadServer(self.state.announce).serve_passes(request.served_at, one_pass)
