"""The tensors of a program between steps: parameters, buffers, inputs, optimiser's state.

Must not know calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.call_arguments import storage_key
from bricks.backends.torch.values import ONNX_DTYPES
from bricks.graph.program import TORCH_DTYPES, ModuleTensors
from bricks.graph.program_phases import BUFFERS, INPUTS, OPTIMIZER, PARAMETERS

if TYPE_CHECKING:
    from bricks.backends.torch.entry import Program


def program_tensors(program: Program) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors that live between steps, by role and name."""
    parameters = dict(program.module.named_parameters())
    title = {id(tensor): name for name, tensor in parameters.items()}
    state: dict[str, torch.Tensor] = {}
    if program.optimizer is not None:
        for tensor, values in program.optimizer.state.items():
            owner = title.get(id(tensor), "parameter")
            state |= {f"{owner}.{k}": v for k, v in values.items() if isinstance(v, torch.Tensor)}
    return {
        INPUTS: {f"input{number}": tensor for number, tensor in enumerate(program.inputs)},
        PARAMETERS: parameters,
        BUFFERS: dict(program.module.named_buffers()),
        OPTIMIZER: state,
    }


def sizes_bytes(tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, int]:
    """Return the bytes of storages by role; a shared storage counts once."""
    seen: set[int] = set()
    sizes = {}
    for role, named in tensors.items():
        new = {
            storage_key(t): t.untyped_storage().nbytes()
            for t in named.values()
            if storage_key(t) not in seen
        }
        seen |= new.keys()
        sizes[role] = sum(new.values())
    return sizes


def module_tensors(module: torch.nn.Module, gradients: Mapping[str, str]) -> ModuleTensors:
    """Return the facts of ``module``; ``gradients`` are values by parameter, empty for none."""
    buffers: Counter[str] = Counter()
    for buffer in module.buffers():
        buffers[TORCH_DTYPES[ONNX_DTYPES[buffer.dtype]]] += buffer.nbytes
    return ModuleTensors([(name, bool(value)) for name, value in gradients.items()], buffers)
