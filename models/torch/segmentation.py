"""Image segmentation by a U-Net: inference and a training step.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Images and labels are random, since latency does not depend on them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLASSES = 4
SIDE = 128


class DoubleConv(nn.Sequential):
    """Two 3×3 convolutions, each with batch normalisation and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UpConv(nn.Sequential):
    """Twice the height and width by interpolation, and half the channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
            nn.Conv2d(inputs, inputs // 2, 1),
        )


class UNet(nn.Module):
    """U-Net with padded convolutions (Ronneberger et al., 2015, arXiv:1505.04597).

    ``width`` is the number of channels at full size; each of the ``depth`` levels below doubles it.
    """

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.encoders = nn.ModuleList(DoubleConv(i, o) for i, o in pairwise([3, *widths[:-1]]))
        self.pool = nn.MaxPool2d(2)
        self.bottom = DoubleConv(widths[-2], widths[-1])
        self.ups = nn.ModuleList(UpConv(i) for i in reversed(widths[1:]))
        self.decoders = nn.ModuleList(DoubleConv(2 * o, o) for o in reversed(widths[:-1]))
        self.classifier = nn.Conv2d(width, CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of the classes for each pixel, of shape (batch, classes, height, width)."""
        x = images
        skips: list[torch.Tensor] = []
        for encoder in self.encoders:
            skips.append(encoder(x))
            x = self.pool(skips[-1])
        x = self.bottom(x)
        for up, decoder, skip in zip(self.ups, self.decoders, reversed(skips), strict=True):
            x = decoder(torch.cat((skip, up(x)), 1))
        return self.classifier(x)


def unet(batch: int = 4) -> dict[str, Any]:
    """U-Net segments images of 128×128: inference."""
    torch.manual_seed(0)
    return {"module": UNet().eval(), "inputs": (torch.randn(batch, 3, SIDE, SIDE),)}


def unet_training(batch: int = 2) -> dict[str, Any]:
    """U-Net segments images of 128×128: training with Adam."""
    torch.manual_seed(0)
    module = UNet()
    labels = torch.randint(CLASSES, (batch, SIDE, SIDE))
    return {
        "module": module,
        "inputs": (torch.randn(batch, 3, SIDE, SIDE),),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3),
    }
