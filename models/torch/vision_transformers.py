"""Image classification by a vision transformer: inference and training, in float32 and bfloat16.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Images and labels are random, since latency does not depend on them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000
SIDE = 128


class Block(nn.Module):
    """Self-attention and a pair of linear layers, each after layer normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, patches, width)."""
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        attended = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class VisionTransformer(nn.Module):
    """Vision Transformer (Dosovitskiy et al., 2021, arXiv:2010.11929), half as deep as ViT-S/16.

    ``mixed`` runs matrix products in bfloat16, the rest in float32.
    """

    def __init__(self, *, mixed: bool = False) -> None:
        super().__init__()
        width, depth, patch = 384, 6, 16
        self.mixed = mixed
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads=6) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of the classes for images of shape (batch, 3, 128, 128)."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
            patches = self.patches(images).flatten(2).transpose(1, 2)
            token = self.class_token.expand(len(images), -1, -1)
            x = torch.cat((token, patches), 1) + self.positions
            return self.classifier(self.norm(self.blocks(x))[:, 0])


def _images(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, SIDE, SIDE)


def _training(module: nn.Module, batch: int) -> dict[str, Any]:
    images, labels = _images(batch), torch.randint(CLASSES, (batch,))
    return {
        "module": module,
        "inputs": (images,),
        "loss": lambda scores: functional.cross_entropy(scores.float(), labels),
        "optimizer": torch.optim.AdamW(module.parameters(), 1e-3, weight_decay=0.05),
    }


def vit(batch: int = 4) -> dict[str, Any]:
    """A vision transformer classifies images of 128×128: inference."""
    torch.manual_seed(0)
    return {"module": VisionTransformer().eval(), "inputs": (_images(batch),)}


def vit_training(batch: int = 4) -> dict[str, Any]:
    """A vision transformer classifies images of 128×128: training with AdamW."""
    torch.manual_seed(0)
    return _training(VisionTransformer(), batch)


def vit_training_bfloat16(batch: int = 4) -> dict[str, Any]:
    """A vision transformer classifies images of 128×128: training in bfloat16 with AdamW."""
    torch.manual_seed(0)
    return _training(VisionTransformer(mixed=True), batch)
