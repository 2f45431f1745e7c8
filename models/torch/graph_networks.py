"""Graph networks that classify nodes, by gathering and scattering along edges: inference, training.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. The graph is random and fixed, and so a part of the module; a batch is
several sets of features of its nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class GraphConvolution(nn.Module):
    """Linear features, added up over weighted edges by ``index_add``."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """Features of nodes, of shape (batch, nodes, outputs); the edges are of shape (edges,)."""
        x = self.linear(x)
        messages = x.index_select(1, source) * weight[:, None]
        return torch.zeros_like(x).index_add(1, target, messages) + self.bias


class GCN(nn.Module):
    """Graph convolutional network (Kipf and Welling, 2017, arXiv:1609.02907), as large as Cora.

    Edges go both ways and from each node to itself; their weights normalise by degree.
    """

    nodes, links, features, classes = 2708, 5278, 1433, 7

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        ends = torch.randint(self.nodes, (2, self.links))
        loops = torch.arange(self.nodes)
        source = torch.cat((ends[0], ends[1], loops))
        target = torch.cat((ends[1], ends[0], loops))
        scale = torch.bincount(target, minlength=self.nodes) ** -0.5
        self.register_buffer("source", source)
        self.register_buffer("target", target)
        self.register_buffer("weight", scale[source] * scale[target])
        self.first = GraphConvolution(self.features, width)
        self.second = GraphConvolution(width, self.classes)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes, for features of shape (batch, nodes, features)."""
        x = self.first(self.dropout(x), self.source, self.target, self.weight)
        x = self.dropout(functional.relu(x))
        return self.second(x, self.source, self.target, self.weight)


class SageLayer(nn.Module):
    """A node's own features and the mean of its neighbours', added up by ``scatter_add``."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbours = nn.Linear(inputs, outputs, bias=False)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, share: torch.Tensor
    ) -> torch.Tensor:
        """Features of nodes; ``share`` is one divided by the number of each node's neighbours."""
        messages = x[:, source]
        index = target[None, :, None].expand_as(messages)
        mean = torch.zeros_like(x).scatter_add(1, index, messages) * share[:, None]
        return self.own(x) + self.neighbours(mean)


class GraphSAGE(nn.Module):
    """GraphSAGE with mean aggregation (Hamilton et al., 2017, arXiv:1706.02216).

    Each node has so many neighbours drawn for it.
    """

    nodes, drawn, features, classes = 1000, 10, 128, 41

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        source = torch.randint(self.nodes, (self.nodes * self.drawn,))
        target = torch.arange(self.nodes).repeat_interleave(self.drawn)
        self.register_buffer("source", source)
        self.register_buffer("target", target)
        self.register_buffer("share", torch.full((self.nodes,), 1 / self.drawn))
        self.first = SageLayer(self.features, width)
        self.second = SageLayer(width, width)
        self.classifier = nn.Linear(width, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes, for features of shape (batch, nodes, features)."""
        for layer in (self.first, self.second):
            x = functional.relu(layer(x, self.source, self.target, self.share))
            x = functional.normalize(x, dim=-1)
        return self.classifier(x)


def _features(module: GCN | GraphSAGE, batch: int) -> torch.Tensor:
    return torch.rand(batch, module.nodes, module.features)


def _training(
    module: GCN | GraphSAGE, batch: int, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    features = _features(module, batch)
    labels = torch.randint(module.classes, (batch, module.nodes)).flatten()
    return {
        "module": module,
        "inputs": (features,),
        "loss": lambda scores: functional.cross_entropy(scores.flatten(0, 1), labels),
        "optimizer": optimizer,
    }


def gcn(batch: int = 1) -> dict[str, Any]:
    """A graph convolutional network classifies 2708 nodes: inference."""
    torch.manual_seed(0)
    module = GCN().eval()
    return {"module": module, "inputs": (_features(module, batch),)}


def gcn_training(batch: int = 1) -> dict[str, Any]:
    """A graph convolutional network classifies 2708 nodes: training with Adam."""
    torch.manual_seed(0)
    module = GCN()
    optimizer = torch.optim.Adam(module.parameters(), 0.01, weight_decay=5e-4)
    return _training(module, batch, optimizer)


def graphsage(batch: int = 4) -> dict[str, Any]:
    """GraphSAGE classifies 1000 nodes: inference."""
    torch.manual_seed(0)
    module = GraphSAGE().eval()
    return {"module": module, "inputs": (_features(module, batch),)}


def graphsage_training(batch: int = 4) -> dict[str, Any]:
    """GraphSAGE classifies 1000 nodes: training with Adam."""
    torch.manual_seed(0)
    module = GraphSAGE()
    return _training(module, batch, torch.optim.Adam(module.parameters(), 0.003))
