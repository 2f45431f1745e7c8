"""Synthetic sets of twenty classes, learned until an accuracy: clusters of points, and sequences.

Each public function is a workload that can be trained, as in ``digits.py``. The sets are drawn with
a fixed seed of their own, so that they are always the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CLASSES, HELD_OUT = 20, 1000
# Of clusters: how many make a class, dimensions, and how far their centres are apart compared with
# their width.
CLUSTERS, DIMENSIONS, SEPARATION = 3, 128, 0.65
# Of sequences: tokens, their length, and how many tokens in a row tell the class.
TOKENS, LENGTH, MOTIF = 64, 24, 6


class Tagged(nn.Module):
    """Tokens to scores of classes by an LSTM (Hochreiter and Schmidhuber, 1997)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, classes) for tokens of shape (batch, length)."""
        features, _ = self.lstm(self.embedding(tokens))
        return self.classifier(features.mean(1))


class SmallTransformer(nn.Module):
    """Tokens to scores of classes by a layer of a transformer (Vaswani et al., 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, batch_first=True, norm_first=True
        )
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, classes) for tokens of shape (batch, length)."""
        features = self.layer(self.embedding(tokens) + self.positions)
        return self.classifier(features.mean(1))


def _clusters(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of shape (count, DIMENSIONS) around a few centres for each class, and the classes."""
    generator = torch.Generator().manual_seed(1)
    centres = SEPARATION * torch.randn(CLUSTERS * CLASSES, DIMENSIONS, generator=generator)
    nearest = torch.randint(len(centres), (count,), generator=generator)
    points = centres[nearest] + torch.randn(count, DIMENSIONS, generator=generator)
    return points, nearest % CLASSES


def _sequences(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens of shape (count, LENGTH), somewhere among them the motif of a class."""
    generator = torch.Generator().manual_seed(2)
    motifs = torch.randint(TOKENS, (CLASSES, MOTIF), generator=generator)
    classes = torch.randint(CLASSES, (count,), generator=generator)
    tokens = torch.randint(TOKENS, (count, LENGTH), generator=generator)
    begins = torch.randint(LENGTH - MOTIF + 1, (count, 1), generator=generator)
    return tokens.scatter(1, begins + torch.arange(MOTIF), motifs[classes]), classes


def _training(
    module: nn.Module,
    items: tuple[torch.Tensor, torch.Tensor],
    batch: int,
    optimizer: torch.optim.Optimizer,
) -> dict[str, Any]:
    given, classes = items
    held_given, held_classes = given[:HELD_OUT], classes[:HELD_OUT]
    inputs, targets = given[-batch:].clone(), classes[-batch:].clone()
    learned = TensorDataset(given[HELD_OUT:], classes[HELD_OUT:])
    return {
        "module": module,
        "inputs": (inputs,),
        "targets": (targets,),
        "loss": lambda scores: functional.cross_entropy(scores, targets),
        "optimizer": optimizer,
        "data": DataLoader(learned, batch, shuffle=True, drop_last=True),
        "accuracy": lambda: (module(held_given).argmax(1) == held_classes).float().mean(),
    }


def _perceptron(width: int, layers: int) -> nn.Module:
    hidden = [
        each
        for number in range(layers)
        for each in (nn.Linear(DIMENSIONS if not number else width, width), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


def clusters_rmsprop(batch: int = 128) -> dict[str, Any]:
    """A perceptron of three hidden layers tells clusters apart, with RMSprop."""
    module = _perceptron(256, 3)
    optimizer = torch.optim.RMSprop(module.parameters(), 1e-4)
    return _training(module, _clusters(9000), batch, optimizer)


def clusters_adagrad(batch: int = 64) -> dict[str, Any]:
    """A wide perceptron of one hidden layer tells clusters apart, with Adagrad."""
    module = _perceptron(2048, 1)
    return _training(module, _clusters(7000), batch, torch.optim.Adagrad(module.parameters(), 5e-4))


def sequences_lstm(batch: int = 64) -> dict[str, Any]:
    """An LSTM finds the motif in a sequence, with Adam."""
    module = Tagged(64)
    return _training(module, _sequences(7000), batch, torch.optim.Adam(module.parameters(), 1e-3))


def sequences_transformer(batch: int = 64) -> dict[str, Any]:
    """A small transformer finds the motif in a sequence, with AdamW."""
    module = SmallTransformer(64)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3, weight_decay=0.01)
    return _training(module, _sequences(7000), batch, optimizer)
