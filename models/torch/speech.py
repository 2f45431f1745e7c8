"""Speech recognition and keyword spotting: inference and training steps.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Sounds and transcripts are random, since latency does not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SYMBOLS = 32  # of transcripts; the first is CTC's blank


class RelativeAttention(nn.Module):
    """Self-attention with relative positions (Dai et al., 2019, arXiv:1901.02860)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
        self.position_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, length, width); see :class:`Distances`."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        position = self.position(distances).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        by_content = (query + self.content_bias) @ key.transpose(-1, -2)
        by_position = _shifted((query + self.position_bias) @ position.transpose(-1, -2))
        scores = (by_content + by_position) * query.shape[-1] ** -0.5
        return self.projection((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


def _shifted(scores: torch.Tensor) -> torch.Tensor:
    """From scores by distance, of (length, 2 × length - 1), to those by position of the key."""
    batch, heads, length, _ = scores.shape
    padded = functional.pad(scores, (1, 0)).view(batch, heads, 2 * length, length)
    return padded[:, :, 1:].view_as(scores)[..., :length]


class Distances(nn.Module):
    """Sinusoids of the distances between positions, from ``length`` - 1 down to its negative."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
        angles = torch.outer(torch.arange(length - 1, -length, -1.0), frequencies)
        sinusoids = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        self.register_buffer("sinusoids", sinusoids, persistent=False)

    def forward(self) -> torch.Tensor:
        """The sinusoids, of shape (2 × length - 1, width)."""
        return self.sinusoids


class ConvolutionModule(nn.Module):
    """Pointwise convolutions with a gate and a depthwise convolution between them."""

    def __init__(self, width: int, kernel: int = 31) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(dim=1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, length, width)."""
        return self.layers(self.norm(x).transpose(1, 2)).transpose(1, 2)


class FeedForward(nn.Sequential):
    """Layer normalisation and a pair of linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.SiLU(),
            nn.Linear(4 * width, width),
        )


class ConformerBlock(nn.Module):
    """Attention and convolution between two halves of a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first = FeedForward(width)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads)
        self.convolution = ConvolutionModule(width)
        self.second = FeedForward(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, length, width)."""
        x = x + 0.5 * self.first(x)
        x = x + self.attention(self.attention_norm(x), distances)
        x = x + self.convolution(x)
        return self.norm(x + 0.5 * self.second(x))


class Conformer(nn.Module):
    """Conformer with CTC (Gulati et al., 2020, arXiv:2005.08100), 4 layers of size S."""

    frames, bands = 400, 80  # of the spectrogram: 4 s

    def __init__(self) -> None:
        super().__init__()
        width, depth, heads = 144, 4, 4
        self.subsampling = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2),
            nn.ReLU(),
        )
        self.projection = nn.Linear(width * _quarter(self.bands), width)
        self.distances = Distances(_quarter(self.frames), width)
        self.blocks = nn.ModuleList(ConformerBlock(width, heads) for _ in range(depth))
        self.classifier = nn.Linear(width, SYMBOLS)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of symbols for a spectrogram of shape (batch, frames, bands)."""
        x = self.subsampling(spectrogram.unsqueeze(1))
        x = self.projection(x.transpose(1, 2).flatten(2))
        for block in self.blocks:
            x = block(x, self.distances())
        return self.classifier(x).log_softmax(-1)


def _quarter(size: int) -> int:
    """What two convolutions of kernel 3 and stride 2 leave of a size."""
    return ((size - 1) // 2 - 1) // 2


class WaveFeatures(nn.Sequential):
    """Convolutions that turn samples at 16 kHz into 50 frames a second."""

    def __init__(self, channels: int) -> None:
        layers: list[nn.Module] = []
        inputs = 1
        for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
            layers.append(nn.Conv1d(inputs, channels, kernel, stride, bias=False))
            if inputs == 1:
                layers.append(nn.GroupNorm(channels, channels))
            layers.append(nn.GELU())
            inputs = channels
        super().__init__(*layers)


class Wav2Vec2(nn.Module):
    """wav2vec 2.0 with CTC (Baevski et al., 2020, arXiv:2006.11477), 4 layers of 256."""

    samples = 32_000  # 2 s

    def __init__(self) -> None:
        super().__init__()
        channels, width, depth, heads = 128, 256, 4, 4
        self.features = WaveFeatures(channels)
        self.projection = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, width))
        positions = nn.Conv1d(width, width, 128, padding=64, groups=16)
        self.positions = nn.utils.parametrizations.weight_norm(positions, dim=2)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True
                )
                for _ in range(depth)
            )
        )
        self.classifier = nn.Linear(width, SYMBOLS)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of symbols for sounds of shape (batch, samples)."""
        x = self.projection(self.features(sound.unsqueeze(1)).transpose(1, 2))
        positions = self.positions(x.transpose(1, 2))[..., :-1]  # an even kernel gives one too many
        x = self.layers(self.norm(x + functional.gelu(positions).transpose(1, 2)))
        return self.classifier(x).log_softmax(-1)


class KeywordSpotter(nn.Sequential):
    """DS-CNN of size M (Zhang et al., 2017, arXiv:1711.07128): 10 coefficients at 49 times."""

    def __init__(self, width: int = 172, keywords: int = 12) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(1, width, (10, 4), stride=(2, 1), padding=(5, 2), bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        for stride in (2, 1, 1, 1):
            layers += [
                nn.Conv2d(width, width, 3, stride, padding=1, groups=width, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, keywords)]
        super().__init__(*layers)


def _ctc_loss(batch: int, length: int = 16) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean CTC loss of transcripts of ``length`` symbols, from log-probabilities."""
    transcripts = torch.randint(1, SYMBOLS, (batch, length))

    def loss(scores: torch.Tensor) -> torch.Tensor:
        total = functional.ctc_loss(
            scores.transpose(0, 1),
            transcripts,
            input_lengths=(scores.shape[1],) * batch,
            target_lengths=(length,) * batch,
            reduction="sum",
        )
        return total / batch

    return loss


def conformer(batch: int = 4) -> dict[str, Any]:
    """A small Conformer transcribes 4 s of speech: inference."""
    torch.manual_seed(0)
    spectrogram = torch.randn(batch, Conformer.frames, Conformer.bands)
    return {"module": Conformer().eval(), "inputs": (spectrogram,)}


def conformer_training(batch: int = 4) -> dict[str, Any]:
    """A small Conformer transcribes 4 s of speech: training with the CTC loss and Adam."""
    torch.manual_seed(0)
    module = Conformer()
    return {
        "module": module,
        "inputs": (torch.randn(batch, Conformer.frames, Conformer.bands),),
        "loss": _ctc_loss(batch),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3, betas=(0.9, 0.98), eps=1e-9),
    }


def wav2vec2(batch: int = 2) -> dict[str, Any]:
    """A small wav2vec 2.0 transcribes 2 s of speech: inference."""
    torch.manual_seed(0)
    return {"module": Wav2Vec2().eval(), "inputs": (torch.randn(batch, Wav2Vec2.samples),)}


def wav2vec2_training(batch: int = 2) -> dict[str, Any]:
    """A small wav2vec 2.0 is fine-tuned, its convolutions frozen: training with AdamW."""
    torch.manual_seed(0)
    module = Wav2Vec2()
    module.features.requires_grad_(False)
    trained = [each for each in module.parameters() if each.requires_grad]
    return {
        "module": module,
        "inputs": (torch.randn(batch, Wav2Vec2.samples),),
        "loss": _ctc_loss(batch),
        "optimizer": torch.optim.AdamW(trained, 1e-4),
    }


def keyword_spotting(batch: int = 32) -> dict[str, Any]:
    """A depthwise-separable network spots keywords in 1 s of speech: inference."""
    torch.manual_seed(0)
    return {"module": KeywordSpotter().eval(), "inputs": (torch.randn(batch, 1, 49, 10),)}
