"""A task: walks to sample in turn, and the claims in the store that they complete.

The probes of a call's overhead have a walk of their own. It must not know how walks are run, nor
where their rounds are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from bricks.backends.kernel_timing import launch_probe
from bricks.backends.onnx_instruments import chain
from bricks.measure.walk import (
    Load,
    Walk,
    WalkStep,
    in_cache_state,
    isolated,
    single_step,
    with_streams,
)
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.samples.call_overhead import DEVICE_PROBES, PHASE_PROBES, PROBES, probes_of

if TYPE_CHECKING:
    from bricks.measure.conditions import Conditions, Deadline, SamplingGoal, StopRule
    from bricks.measure.jobs import Batch, ModelJob
    from bricks.store import Claim

# Names of walks, as progress shows them.
BRICKS, WHOLE, OVERHEAD = "bricks", "whole model", "call overhead"

# A probe takes microseconds: several runs make one pass long enough to settle.
_REPEATS = 5
# The domain of probes of a program's phases, for which the backend runs tiny programs of its own.
STEP_DOMAIN = "org.pytorch.probe"


@dataclass(frozen=True, slots=True)
class SamplingTask:
    """Walks by name, and the claims that they complete.

    ``what`` names the task in messages. ``goals`` has the goal of each walk, by name. ``span`` is
    where the task begins and ends in the progress of the campaign, between 0 and 1. Further copies,
    if any, run the model of ``copied`` meanwhile.
    """

    what: str
    walks: Mapping[str, Walk]
    claims: Sequence[Claim]
    rule: StopRule
    deadline: Deadline
    goals: Mapping[str, SamplingGoal] = field(default_factory=dict)
    span: tuple[float, float] = (0.0, 0.0)
    copied: ModelJob | None = None

    @property
    def claimed(self) -> set[str]:
        """Claimed keys; other keys that are timed along with them are measured again."""
        return {claim.key for claim in self.claims}

    @property
    def bricks(self) -> set[str]:
        """Keys of walks over bricks of models."""
        walks = (walk for name, walk in self.walks.items() if name.startswith(BRICKS))
        return {step.key for walk in walks for step in walk.steps}

    def share_of_all(self, share: float) -> float:
        """The progress of the campaign when ``share`` of the task is done."""
        begin, end = self.span
        return begin + (end - begin) * share

    def isolated(self, key: str) -> SamplingTask:
        """The part of the task for ``key``, with no other key loaded."""
        walks = {
            name: isolated(walk, key)
            for name, walk in self.walks.items()
            if any(step.key == key and step.timed for step in walk.steps)
        }
        claims = [claim for claim in self.claims if claim.key == key]
        return replace(self, walks=walks, claims=claims, span=(self.span[1], self.span[1]))


def probes_for(jobs: Iterable[ModelJob], conditions: Conditions) -> list[str]:
    """The keys of the probes that estimates of the jobs' models need."""
    keys = [*PROBES.values(), *(k for job in jobs for k in probes_of(job.decomposition.plan))]
    if conditions.on_device:
        keys += DEVICE_PROBES.values()
    return list(dict.fromkeys(keys))


def walks_of(
    batch: Batch,
    whole: ModelJob | None,
    assigned: Sequence[tuple[ModelJob, Collection[str]]],
    failed: Collection[str],
    conditions: Conditions,
) -> dict[str, Walk]:
    """Walks over the ``whole`` model, and over the bricks ``assigned`` to jobs, by name.

    Bricks that ``failed`` are left out. ``conditions`` limit the read before a pass, and say after
    which displaced bytes kernels on a device are timed too.
    """
    # The model first: loading it takes the most memory, and most is free at first. Where bricks
    # are measured again, so is the model, in turn with them.
    walks = {} if whole is None else {WHOLE: whole_walk(whole)}
    for job, keys in assigned:
        name = f"{BRICKS} of {job.model.digest}"
        walk = walk_of(
            job.decomposition,
            keys,
            WalkOptions(
                optimize=job.decomposition.plan.granularity != "executed",
                avoid=failed,
                max_eviction_bytes=conditions.max_eviction_bytes,
            ),
        )
        walks[name] = walk
        for displaced_bytes in conditions.displaced_bytes:
            walks[f"{name} after {displaced_bytes}"] = in_cache_state(walk, displaced_bytes)
    if walks:  # The overhead of a call changes from minute to minute, so it is sampled in turn.
        walks[OVERHEAD] = probe_walk(probes_for(batch.jobs, conditions))
    return walks


def whole_walk(job: ModelJob) -> Walk:
    """The walk of one step that runs the whole model of ``job``."""
    plan = job.decomposition.plan
    inputs, outputs = len(plan.inputs), len(plan.outputs)
    model, folder = job.model.skeleton, str(job.model.folder)
    walk = single_step(job.whole_key, model, inputs=inputs, outputs=outputs, folder=folder)
    return with_streams(walk, job.node_streams)


def step_probe(phase: str, part: str, kind: str) -> onnx.ModelProto:
    """A model that stands for a phase of the backend's own tiny programs.

    Its latency is that of a real ``step``, or of the ``calls`` of the step without ``part``.
    """
    node = helper.make_node(kind, [], ["out"], domain=STEP_DOMAIN, phase=phase, part=part)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "probe", [], [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(STEP_DOMAIN, 1)])


def probe_walk(keys: list[str]) -> Walk:
    """A walk over the probes called ``keys``, each run several times before it is timed."""
    loads, steps = [], []
    for length, key in PROBES.items():
        if key not in keys:
            continue
        # Optimised, the chain would collapse into one node.
        loads.append(Load(key, chain(length).SerializeToString(), optimize=False))
        for i in range(_REPEATS):
            steps.append(WalkStep(f"{key}/{i}", key, (None,), (None,), timed=i == _REPEATS - 1))
    for phase, parts in PHASE_PROBES.items():
        for part, pair in parts.items():
            for kind, key in zip(("step", "calls"), pair, strict=True):
                if key in keys:
                    proto = step_probe(phase, part, kind)
                    loads.append(Load(key, proto.SerializeToString(), optimize=False))
                    steps.append(WalkStep(key, key, (), (None,), timed=True))
    for name, key in DEVICE_PROBES.items():
        if key in keys:
            loads.append(Load(key, launch_probe(name).SerializeToString(), optimize=False))
            steps.append(WalkStep(key, key, (), (None,), timed=True))
    return Walk(tuple(loads), tuple(steps), kernels=False)
