"""The tensors that a program holds between steps: parameters, buffers, inputs, optimiser's state.

Must not know what calls do with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from bricks.backends.torch.call_arguments import storage_key
from bricks.backends.torch.entry import Program
from bricks.backends.torch.values import ONNX_DTYPES
from bricks.graph.program import TORCH_DTYPES, ModuleTensors
from bricks.graph.program_phases import BUFFERS, INPUTS, OPTIMIZER, PARAMETERS


def held_by(program: Program) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors that the program holds between steps, by role and name."""
    parameters = dict(program.module.named_parameters())
    title = {id(tensor): name for name, tensor in parameters.items()}
    state: dict[str, torch.Tensor] = {}
    if program.optimizer is not None:
        for tensor, held in program.optimizer.state.items():
            of = title.get(id(tensor), "parameter")
            state |= {f"{of}.{k}": v for k, v in held.items() if isinstance(v, torch.Tensor)}
    return {
        INPUTS: {f"input{number}": tensor for number, tensor in enumerate(program.inputs)},
        PARAMETERS: parameters,
        BUFFERS: dict(program.module.named_buffers()),
        OPTIMIZER: state,
    }


def sizes_bytes(held: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, int]:
    """Bytes of memory by role; what several tensors share counts once."""
    seen: set[int] = set()
    sizes = {}
    for role, named in held.items():
        new = {
            storage_key(t): t.untyped_storage().nbytes()
            for t in named.values()
            if storage_key(t) not in seen
        }
        seen |= new.keys()
        sizes[role] = sum(new.values())
    return sizes


def module_tensors(module: torch.nn.Module, gradients: Mapping[str, str]) -> ModuleTensors:
    """The facts of ``module``, whose parameters have ``gradients`` by name, or an empty one."""
    buffers: Counter[str] = Counter()
    for buffer in module.buffers():
        buffers[TORCH_DTYPES[ONNX_DTYPES[buffer.dtype]]] += buffer.nbytes
    return ModuleTensors([(name, bool(value)) for name, value in gradients.items()], buffers)
