"""Write the signatures of PyTorch's operators, by which calls in its profiler's traces are read.

    PYTHON_OF_TORCH tools/write_signatures.py

PYTHON_OF_TORCH is the Python of the environment 'torch' (see 'bricks backends list'). The same
version of PyTorch gives the same file. Here PyTorch alone is imported.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).parents[1] / "bricks/backends/torch/trace/signatures.json.xz"
NAMESPACES = {"aten", "prims", "mkldnn", "inductor"}
COMPOSITE = "CompositeImplicitAutograd"


def signatures() -> dict[str, Any]:
    """By operator: whether it only calls others, and its arguments.

    An argument is its name, type, whether it is given by name only, and its default, if it has one.
    """
    every = {}
    for schema in torch._C._jit_get_all_schemas():
        name = ".".join(filter(None, (schema.name, schema.overload_name)))
        if schema.name.partition("::")[0] in NAMESPACES and _dispatched(name):
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, COMPOSITE)
            every[name] = [composite, [list(_argument(a)) for a in schema.arguments]]
    return {"version": torch.__version__, "operators": dict(sorted(every.items()))}


def _dispatched(name: str) -> bool:
    """Whether the dispatcher knows an operator; others are functions of TorchScript."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key(name, COMPOSITE)
    except RuntimeError:
        return False
    return True


def _argument(argument: Any) -> Iterator[Any]:
    yield argument.name
    yield str(argument.type)
    yield argument.kwarg_only
    if argument.has_default_value():
        yield argument.default_value


if __name__ == "__main__":
    text = json.dumps(signatures(), separators=(",", ":"))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))
