"""Tiny programs whose steps measure the call overhead of Python and the autograd engine.

Their operators compute little, so that overhead dominates a step. Must not know how steps are
timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional

from bricks.backends.torch.entry import Program

# Programs of few narrow layers, of many, and of wide ones, whose weights evict all other data from
# the caches of a core.
FEW, MANY, WIDE = "few", "many", "wide"
_BLOCKS, _WIDTH, _BATCH = 6, 8, 2
_WIDE_LAYERS, _WIDE_WIDTH = 3, 512


class _Block(nn.Module):
    """The layers of which most programs consist: products, convolutions, norms, sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.first = nn.Linear(_WIDTH, 2 * _WIDTH)
        self.second = nn.Linear(2 * _WIDTH, _WIDTH)
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layers, with residual connections."""
        x = x + self.second(functional.gelu(self.first(self.norm(x))))
        y = self.convolution(x.unsqueeze(1)).squeeze(1)
        return functional.relu(self.batch_norm(y) + x)


def _perceptron(layers: int, width: int) -> nn.Module:
    return nn.Sequential(
        *(each for _ in range(layers) for each in (nn.Linear(width, width), nn.ReLU()))
    )


MODULES: Mapping[str, tuple[int, Callable[[], nn.Module]]] = {
    FEW: (_WIDTH, lambda: _perceptron(1, _WIDTH)),
    MANY: (_WIDTH, lambda: nn.Sequential(*(_Block() for _ in range(_BLOCKS)))),
    WIDE: (_WIDE_WIDTH, lambda: _perceptron(_WIDE_LAYERS, _WIDE_WIDTH)),
}


def tiny_program(which: str, *, training: bool) -> Program:
    """Return a tiny program by its name, for a training step or for inference."""
    width, module_of = MODULES[which]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = module_of()
        inputs, labels = (torch.randn(_BATCH, width),), torch.arange(_BATCH)
    if not training:
        return Program("probe", module.eval(), inputs)
    optimizer = torch.optim.SGD(module.parameters(), 1e-6, momentum=0.9)
    return Program(
        "probe", module, inputs, lambda y: functional.cross_entropy(y, labels), optimizer
    )
