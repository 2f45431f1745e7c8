"""What networks of MXNet compute, for a check that their files compute the same.

Weights are drawn, normalisations and all, and the network is run in MXNet itself:

    python models/recipes/gluon_values.py --out FOLDER RECIPE [NAME…]

writes ``NAME.npz`` with parameters (``p:``), inputs (``i:``) and results (``o:0``, …). Needs the
environment of ``requirements-mxnet.lock``; ``tools/zoo_check.py`` reads the files.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

# MXNet's plain kernels are the reference: with oneDNN its version 1.9.1 computes another U-Net.
os.environ["MXNET_MKLDNN_ENABLED"] = "0"
os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"

import mxnet as mx
import numpy as np
from gluon_export import Network, flatten


def computed(network: Network) -> dict[str, np.ndarray[Any, Any]]:
    """Parameters, inputs and results of a network, by the names in its file."""
    mx.random.seed(0)
    random = np.random.default_rng(0)
    with mx.name.NameManager():  # as where it is exported: the names are the same
        block = network.build()
        block(*(mx.sym.var(name) for name, _ in network.inputs))
    block.initialize(mx.init.Xavier(), force_reinit=True)
    inputs = {
        name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in network.inputs
    }
    given = [mx.nd.array(value) for value in inputs.values()]
    block(*given)  # decides the shapes that were left open
    for name, parameter in block.collect_params().items():
        low, high = (0.5, 1.5) if name.endswith(("gamma", "running_var")) else (-0.2, 0.2)
        if name.endswith(("gamma", "running_var", "beta", "running_mean", "bias")):
            parameter.set_data(mx.nd.array(random.uniform(low, high, parameter.shape)))
    results = list(flatten(block(*given)))[: network.outputs]
    values = {f"p:{name}": held.data().asnumpy() for name, held in block.collect_params().items()}
    values |= {f"i:{name}": value for name, value in inputs.items()}
    return values | {f"o:{i}": result.asnumpy() for i, result in enumerate(results)}


def main() -> None:
    """Write the values of a recipe's networks, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recipe")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for network in importlib.import_module(arguments.recipe).NETWORKS:
        if not arguments.names or network.name in arguments.names:
            values: Any = computed(network)
            np.savez(arguments.out / f"{network.name}.npz", **values)
            print(network.name, flush=True)


if __name__ == "__main__":
    main()
