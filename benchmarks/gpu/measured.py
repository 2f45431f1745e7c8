"""A program's raw data as a plan and measurements of its bricks: what estimates are made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.gpu.raw import RawProgram, Run
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition, Plan
from bricks.graph.model import Model
from bricks.graph.program import call_of
from bricks.graph.view import graph_of
from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Sample

# The time on the host of a call that was not timed there; samples need a positive number.
_UNKNOWN_S = 1e-9


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program with the plan of its calls and a measurement of each brick, by key.

    Each call is a brick, so ``decomposition.plan.occurrences`` are ``program.calls`` in order.
    """

    program: RawProgram
    decomposition: Decomposition
    measured: Mapping[str, Measurement]

    @property
    def plan(self) -> Plan:
        """The plan of the program's calls."""
        return self.decomposition.plan


def measured(program: RawProgram, model: Model | None = None) -> MeasuredProgram:
    """Cut a program into its calls, and give each brick the kernels of its unique call.

    ``model`` is the program as it was read from a file; None: as the raw data have it.
    Samples have the median time of equal calls on the host. A call that starts no kernel, such as a
    view, has samples without. Bricks whose call could not be replayed have no measurement.
    """
    whole = model or _unread(program.proto, program.name)
    parted = build(whole, program.graph, Granularity.parse("executed"))
    keys = [occurrence.brick for occurrence in parted.plan.occurrences]
    hosts_s, starting = _host_s(program, keys), _starting(program, keys)
    results: dict[str, Measurement] = {}
    for key, call, node in zip(keys, program.calls, program.proto.graph.node, strict=True):
        states = None if call_of(node).on_host else program.kernels.get(call.unique)
        if states is None:
            states = {} if key in starting else {None: ((),)}
        rounds = tuple(_rounds(states, hosts_s[key]))
        if rounds:
            results.setdefault(key, Measurement(key, rounds, 0.0))
    return MeasuredProgram(program, parted, results)


def cut(proto: onnx.ModelProto, name: str) -> Decomposition:
    """A program cut into its calls."""
    return build(_unread(proto, name), graph_of(proto), Granularity.parse("executed"))


def _unread(proto: onnx.ModelProto, name: str) -> Model:
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    return Model(name, Path(), skeleton, (), digest)


def _starting(program: RawProgram, keys: Sequence[str]) -> set[str]:
    """The bricks that start kernels in a replay."""
    return {key for key, run in zip(keys, program.replayed, strict=True) if run}


def _rounds(states: Mapping[int | None, Iterable[Run]], host_s: float) -> Iterator[Round]:
    """A round for each run, so that runs count as independent."""
    for displaced_bytes, runs in states.items():
        for run in runs:
            yield Round.of([Sample(host_s, run, displaced_bytes)])


def _host_s(program: RawProgram, keys: Sequence[str]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for key, taken_s in zip(keys, program.issued_s or program.synchronised_s, strict=True):
        times.setdefault(key, []).append(taken_s)
    return {key: max(_UNKNOWN_S, sorted(of)[len(of) // 2]) for key, of in times.items()}
