"""Recommendation from tables of embeddings: inference and training steps.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Features and clicks are random: latency depends on them only through caches.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

NUMBERS = 13  # numeric features, as in the Criteo data set
ROWS = (50_000,) * 2 + (10_000,) * 6 + (1_000,) * 8 + (100,) * 10  # of each categorical feature
CROSSES, CROSS_ROWS = 20, 100_000  # crossed features of wide & deep
USERS, ITEMS, HISTORY = 50_000, 20_000, 20


def _mlp(*widths: int) -> nn.Sequential:
    """Linear layers, each followed by ReLU."""
    layers = ((nn.Linear(i, o), nn.ReLU()) for i, o in pairwise(widths))
    return nn.Sequential(*chain.from_iterable(layers))


class DLRM(nn.Module):
    """Deep learning recommendation model (Naumov et al., 2019, arXiv:1906.00091)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.bottom = _mlp(NUMBERS, 512, 256, width)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in ROWS)
        count = len(ROWS) + 1
        pairs = torch.tril_indices(count, count, -1)
        self.register_buffer("rows", pairs[0].clone(), persistent=False)
        self.register_buffer("columns", pairs[1].clone(), persistent=False)
        interactions = count * (count - 1) // 2
        self.top = nn.Sequential(_mlp(width + interactions, 512, 256), nn.Linear(256, 1))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """The score of a click, for inputs of (batch, numbers) and (batch, categories)."""
        dense = self.bottom(numbers)
        sparse = [table(categories[:, n : n + 1]) for n, table in enumerate(self.tables)]
        features = torch.stack((dense, *sparse), 1)
        products = features @ features.transpose(1, 2)
        interactions = products[:, self.rows, self.columns]
        return self.top(torch.cat((dense, interactions), 1)).squeeze(1)


class WideAndDeep(nn.Module):
    """Wide & deep learning (Cheng et al., 2016, arXiv:1606.07792)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.wide = nn.Embedding(CROSS_ROWS, 1)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in ROWS)
        inputs = NUMBERS + width * len(ROWS)
        self.deep = nn.Sequential(_mlp(inputs, 1024, 512, 256), nn.Linear(256, 1))

    def forward(
        self, numbers: torch.Tensor, categories: torch.Tensor, crosses: torch.Tensor
    ) -> torch.Tensor:
        """The score of a click; ``crosses`` are the rows of pairs of features that hold."""
        sparse = [
            table(column) for table, column in zip(self.tables, categories.unbind(1), strict=True)
        ]
        deep = self.deep(torch.cat((numbers, *sparse), 1)).squeeze(1)
        return deep + self.wide(crosses).sum((1, 2))


class TwoTower(nn.Module):
    """Users and items in one space (Yi et al., 2019, doi:10.1145/3298689.3346996)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.items = nn.Embedding(ITEMS, width)
        self.user_tower = nn.Sequential(_mlp(2 * width, 512, 256), nn.Linear(256, width))
        self.item_tower = nn.Sequential(_mlp(width, 512, 256), nn.Linear(256, width))

    def forward(
        self, users: torch.Tensor, history: torch.Tensor, items: torch.Tensor
    ) -> torch.Tensor:
        """Scores of each user with each item, of shape (batch, batch)."""
        seen = self.items(history).mean(1)
        user = self.user_tower(torch.cat((self.users(users), seen), 1))
        item = self.item_tower(self.items(items))
        similarity = functional.normalize(user, dim=1) @ functional.normalize(item, dim=1).T
        return similarity / 0.05


def _features(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numeric and categorical features."""
    categories = [torch.randint(rows, (batch,)) for rows in ROWS]
    return torch.rand(batch, NUMBERS), torch.stack(categories, 1)


def _crossed_features(batch: int) -> tuple[torch.Tensor, ...]:
    return *_features(batch), torch.randint(CROSS_ROWS, (batch, CROSSES))


def _visits(batch: int) -> tuple[torch.Tensor, ...]:
    """Users, the items that they saw before, and the items that they chose."""
    users = torch.randint(USERS, (batch,))
    return users, torch.randint(ITEMS, (batch, HISTORY)), torch.randint(ITEMS, (batch,))


def _click_training(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    clicks = torch.randint(2, (len(inputs[0]),)).float()
    return {
        "module": module,
        "inputs": inputs,
        "loss": lambda scores: functional.binary_cross_entropy_with_logits(scores, clicks),
        "optimizer": optimizer,
    }


def dlrm(batch: int = 1024) -> dict[str, Any]:
    """DLRM predicts clicks from 13 numeric and 26 categorical features: inference."""
    torch.manual_seed(0)
    return {"module": DLRM().eval(), "inputs": _features(batch)}


def dlrm_training(batch: int = 512) -> dict[str, Any]:
    """DLRM predicts clicks from 13 numeric and 26 categorical features: training with SGD."""
    torch.manual_seed(0)
    module = DLRM()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    return _click_training(module, _features(batch), optimizer)


def dlrm_training_adagrad(batch: int = 512) -> dict[str, Any]:
    """DLRM predicts clicks from 13 numeric and 26 categorical features: training with Adagrad."""
    torch.manual_seed(0)
    module = DLRM()
    optimizer = torch.optim.Adagrad(module.parameters(), 0.01)
    return _click_training(module, _features(batch), optimizer)


def wide_and_deep(batch: int = 512) -> dict[str, Any]:
    """Wide & deep predicts clicks from features and pairs of them: inference."""
    torch.manual_seed(0)
    return {"module": WideAndDeep().eval(), "inputs": _crossed_features(batch)}


def wide_and_deep_training(batch: int = 256) -> dict[str, Any]:
    """Wide & deep predicts clicks from features and pairs of them: training with Adam."""
    torch.manual_seed(0)
    module = WideAndDeep()
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    return _click_training(module, _crossed_features(batch), optimizer)


def two_tower(batch: int = 512) -> dict[str, Any]:
    """Two towers score every item of a batch for every user: inference."""
    torch.manual_seed(0)
    return {"module": TwoTower().eval(), "inputs": _visits(batch)}


def two_tower_training(batch: int = 512) -> dict[str, Any]:
    """Two towers learn which item of a batch each user chose: training with Adam."""
    torch.manual_seed(0)
    module = TwoTower()
    chosen = torch.arange(batch)
    return {
        "module": module,
        "inputs": _visits(batch),
        "loss": lambda scores: functional.cross_entropy(scores, chosen),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3),
    }
