"""Handwritten digits, learned until an accuracy: the 1797 images of 8×8 that scikit-learn brings.

Each public function is a workload that can be trained: beside the module, its inputs, the loss and
the optimiser it returns the data, the targets and the accuracy on images that are held out. None
of them seeds anything, so that seeds decide the initial parameters and the order of the data; which
images are held out is always the same.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIDE, HELD_OUT = 10, 8, 360


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and a shortcut (He et al., 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape."""
        return functional.relu(self.layers(x) + x)


def _split() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images of shape (n, 1, 8, 8) and labels to learn from, and those that are held out."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(found.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def _training(module: nn.Module, batch: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    images, labels, held_images, held_labels = _split()
    inputs, targets = images[:batch].clone(), labels[:batch].clone()
    return {
        "module": module,
        "inputs": (inputs,),
        "targets": (targets,),
        "loss": lambda scores: functional.cross_entropy(scores, targets),
        "optimizer": optimizer,
        "data": DataLoader(TensorDataset(images, labels), batch, shuffle=True, drop_last=True),
        "accuracy": lambda: (module(held_images).argmax(1) == held_labels).float().mean(),
    }


def digits_mlp(batch: int = 64) -> dict[str, Any]:
    """A perceptron of two hidden layers, with stochastic gradient descent and momentum."""
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, CLASSES),
    )
    optimizer = torch.optim.SGD(module.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    return _training(module, batch, optimizer)


def digits_cnn(batch: int = 64) -> dict[str, Any]:
    """Two convolutions with pooling and dropout, with Adam."""
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * (SIDE // 2) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )
    return _training(module, batch, torch.optim.Adam(module.parameters(), 5e-4))


def digits_resnet(batch: int = 32) -> dict[str, Any]:
    """Three residual blocks with batch normalisation, with AdamW."""
    width = 32
    module = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        *(ResidualBlock(width) for _ in range(3)),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, CLASSES),
    )
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, weight_decay=0.05)
    return _training(module, batch, optimizer)
