"""Run a model on a runtime, with weights and inputs that only the seed decides; keep the outputs.

python tests/support/evaluating.py RUNTIME SKELETON.onnx OUTPUTS.npz LOCATION
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bricks import backends
from bricks.graph.input_values import feeds
from bricks.graph.synthesis import Pool
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.operators.integer_ranges import integer_ranges


def main(runtime: str, skeleton: str, outputs: str, location: str) -> None:
    """Write the outputs as an archive of arrays, in order."""
    backend = backends.create(runtime, threads=2, seed=0, location=location)
    proto, pool = parse_model(Path(skeleton).read_bytes()), Pool(0)
    graph = graph_of(proto)
    weights = {name: pool.weight(name, type_) for name, type_ in without_values(proto).items()}
    makers = feeds(proto, graph, integer_ranges(graph, graph.inputs), pool)
    given = {name: make() for name, make in makers.items()}
    np.savez(outputs, *backend.evaluate(proto, weights, given, optimize=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
