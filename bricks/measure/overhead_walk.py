"""The walk over the probes of a call's overhead: see ``samples/call_overhead``.

It must not know how the overhead follows from the probes' latencies.
"""

from __future__ import annotations

from itertools import pairwise

import onnx
from onnx import TensorProto, helper

from bricks.measure.walk import Load, Step, Walk
from bricks.samples.call_overhead import PHASE_PROBES, PROBES

# A probe takes microseconds: several runs make one pass long enough to settle.
_REPEATS = 5
# A step of a tiny program takes a millisecond.
_STEPS = 2

# The domain of probes of a recorded program's phases: the backend runs a tiny program of its own.
STEP_DOMAIN = "org.pytorch.probe"


def chain(length: int) -> onnx.ModelProto:
    """A model of ``length`` nodes in a row, each on a single number."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("in", "out")]
    names = ["in", *(f"v{i}" for i in range(1, length)), "out"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    graph = helper.make_graph(nodes, "probe", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def step_probe(phase: str, kind: str) -> onnx.ModelProto:
    """A model that stands for a phase of the backend's own tiny program.

    Its latency is that of a call on average: in a real ``step``, or of its ``calls`` one by one.
    """
    node = helper.make_node(kind, [], ["out"], domain=STEP_DOMAIN, phase=phase)
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
            steps.append(Step(f"{key}/{i}", key, (None,), (None,), timed=i == _REPEATS - 1))
    # What is real runs before its calls, once for all phases and once more that settles it.
    for place, kind in enumerate(("step", "calls")):
        wanted = [(p, pair[place]) for p, pair in PHASE_PROBES.items() if pair[place] in keys]
        for again in range(_STEPS):
            for phase, key in wanted:
                if not again:
                    loads.append(Load(key, step_probe(phase, kind).SerializeToString(), False))
                timed = again == _STEPS - 1
                steps.append(Step(f"{key}/{again}", key, (), (None,), timed=timed))
    return Walk(tuple(loads), tuple(steps))
