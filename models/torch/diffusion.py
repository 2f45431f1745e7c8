"""Image generation by diffusion: a step of sampling, and a training step of its network.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Images and noise are random, since latency does not depend on them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SIDE = 32
STEPS = 1000  # from an image to noise
GROUPS = 32  # of group normalisation


class ResidualBlock(nn.Module):
    """Two convolutions after group normalisation, with the time added between them."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(GROUPS, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time_width, outputs))
        self.second = nn.Sequential(
            nn.GroupNorm(GROUPS, outputs),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Features with ``outputs`` channels; ``time`` is of shape (batch, time_width)."""
        inner = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(inner) + self.shortcut(x)


class SpatialAttention(nn.Module):
    """Self-attention between the pixels of an image, with one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.projection = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, width, height, width of the image)."""
        query, key, value = (
            part.flatten(2).transpose(1, 2).unsqueeze(1)
            for part in self.qkv(self.norm(x)).chunk(3, 1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return x + self.projection(attended.squeeze(1).transpose(1, 2).reshape(x.shape))


class Level(nn.Module):
    """A residual block, and attention where ``attending``."""

    def __init__(self, inputs: int, outputs: int, time_width: int, *, attending: bool) -> None:
        super().__init__()
        self.block = ResidualBlock(inputs, outputs, time_width)
        self.attention = SpatialAttention(outputs) if attending else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Features with ``outputs`` channels."""
        return self.attention(self.block(x, time))


class TimeEmbedding(nn.Module):
    """Sinusoids of the number of a step, and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        frequencies = torch.exp(torch.arange(width // 2) * (-2 * math.log(10_000) / width))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width)
        )

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        """The embedding, of shape (batch, 4 × width), of steps of shape (batch,)."""
        angles = steps[:, None] * self.frequencies
        return self.layers(torch.cat((angles.sin(), angles.cos()), 1))


class DenoisingUNet(nn.Module):
    """The network of DDPM (Ho et al., 2020, arXiv:2006.11239), with one block at each level.

    Attention is on the levels below the first, where images are 16×16 and smaller.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = [width, width, 2 * width, 2 * width]
        time = 4 * width
        self.time = TimeEmbedding(width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.encoder = nn.ModuleList(
            Level(i, o, time, attending=number > 0)
            for number, (i, o) in enumerate(pairwise(widths))
        )
        self.downs = nn.ModuleList(nn.Conv2d(o, o, 3, stride=2, padding=1) for o in widths[1:])
        self.middle = Level(widths[-1], widths[-1], time, attending=True)
        self.middle_block = ResidualBlock(widths[-1], widths[-1], time)
        self.ups = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, i, 3, padding=1))
            for i in reversed(widths[1:])
        )
        self.decoder = nn.ModuleList(
            Level(2 * o, i, time, attending=number > 0)
            for number, (i, o) in reversed(list(enumerate(pairwise(widths))))
        )
        self.head = nn.Sequential(
            nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, noisy: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """The noise in images of shape (batch, 3, side, side), at ``steps`` of shape (batch,)."""
        time = self.time(steps)
        x = self.stem(noisy)
        skips: list[torch.Tensor] = []
        for level, down in zip(self.encoder, self.downs, strict=True):
            skips.append(level(x, time))
            x = down(skips[-1])
        x = self.middle_block(self.middle(x, time), time)
        for up, level, skip in zip(self.ups, self.decoder, reversed(skips), strict=True):
            x = level(torch.cat((up(x), skip), 1), time)
        return self.head(x)


class DenoisingStep(nn.Module):
    """A step of the DDIM sampler (Song et al., 2021, arXiv:2010.02502), ``stride`` steps long."""

    def __init__(self, network: nn.Module, stride: int = 20) -> None:
        super().__init__()
        self.network, self.stride = network, stride
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), 0)
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, noisy: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Images with less noise, of the same shape."""
        noise = self.network(noisy, steps)
        now = self.kept[steps][:, None, None, None]
        then = self.kept[(steps - self.stride).clamp(min=0)][:, None, None, None]
        clean = (noisy - (1 - now).sqrt() * noise) / now.sqrt()
        return then.sqrt() * clean + (1 - then).sqrt() * noise


def _inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images, and how many steps of noise each has."""
    return torch.randn(batch, 3, SIDE, SIDE), torch.randint(STEPS, (batch,))


def diffusion(batch: int = 4) -> dict[str, Any]:
    """A U-Net removes noise from images of 32×32 in a step of DDIM: inference."""
    torch.manual_seed(0)
    return {"module": DenoisingStep(DenoisingUNet()).eval(), "inputs": _inputs(batch)}


def diffusion_training(batch: int = 2) -> dict[str, Any]:
    """A U-Net learns to predict the noise in images of 32×32: training with AdamW."""
    torch.manual_seed(0)
    module = DenoisingUNet()
    noise = torch.randn(batch, 3, SIDE, SIDE)
    return {
        "module": module,
        "inputs": _inputs(batch),
        "loss": lambda predicted: functional.mse_loss(predicted, noise),
        "optimizer": torch.optim.AdamW(module.parameters(), 2e-4),
    }
