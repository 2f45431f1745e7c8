"""The walk over the probes of a call's overhead: see ``samples/call_overhead``.

It must not know how the overhead follows from the probes' latencies.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from bricks.backends.kernel_timing import launch_probe
from bricks.backends.onnx_instruments import chain
from bricks.measure.walk import Load, Walk, WalkStep
from bricks.samples.call_overhead import DEVICE_PROBES, PHASE_PROBES, PROBES

# A probe takes microseconds: several runs make one pass long enough to settle.
_REPEATS = 5
# The domain of probes of a program's phases, for which the backend runs tiny programs of its own.
STEP_DOMAIN = "org.pytorch.probe"


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
