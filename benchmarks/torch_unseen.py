"""Workloads in PyTorch that nothing was tuned to: how well estimates hold for new programs.

Five architectures, each for inference and for training, written separately from the zoo in
``models/torch``. Each public function returns the module, its inputs, and for a training step the
loss and the optimiser. Must not import the zoo, nor be looked at when estimates are improved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class InstanceUNet(nn.Module):
    """A U-Net as nnU-Net configures it (Isensee et al., 2018, arXiv:1809.10486)."""

    def __init__(self, widths: tuple[int, ...] = (24, 48, 96, 160), classes: int = 3) -> None:
        super().__init__()
        self.encoder, self.decoder, self.ups = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        inputs = 1
        for number, width in enumerate(widths):
            self.encoder.append(_stage(inputs, width, stride=2 if number else 1))
            inputs = width
        for width in widths[-2::-1]:
            self.ups.append(nn.ConvTranspose2d(inputs, width, 2, stride=2, bias=False))
            self.decoder.append(_stage(2 * width, width))
            inputs = width
        self.head = nn.Conv2d(inputs, classes, 1)

    def forward(self, scan: torch.Tensor) -> torch.Tensor:
        """Scores of the classes for each pixel of scans of shape (batch, 1, height, width)."""
        stages = [scan]
        for stage in self.encoder:
            stages.append(stage(stages[-1]))
        x = stages.pop()
        for up, stage in zip(self.ups, self.decoder, strict=True):
            x = stage(torch.cat([up(x), stages.pop()], dim=1))
        return self.head(x)


def _stage(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
        nn.InstanceNorm2d(outputs, affine=True),
        nn.LeakyReLU(0.01),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.InstanceNorm2d(outputs, affine=True),
        nn.LeakyReLU(0.01),
    )


class DropoutLayer(nn.Module):
    """A layer of a transformer with dropout after each linear layer and on attention."""

    def __init__(self, width: int, heads: int, rate: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=rate, batch_first=True)
        self.dropout = nn.Dropout(rate)
        self.norm2 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, 4 * width)
        self.linear2 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, patches, width)."""
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        y = self.dropout(functional.gelu(self.linear1(self.norm2(x))))
        return x + self.dropout(self.linear2(y))


class DropoutViT(nn.Module):
    """A vision transformer (arXiv:2010.11929) without class token, with dropout everywhere."""

    def __init__(self, *, side: int = 64, patch: int = 8, width: int = 320) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, width)
        self.positions = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.Sequential(*[DropoutLayer(width, 5, 0.1) for _ in range(5)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 200)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 200 classes for images of shape (batch, 3, 64, 64)."""
        patches = functional.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        x = self.dropout(self.embed(patches) + self.positions)
        return self.head(self.norm(self.layers(x)).mean(dim=1))


class LSTMTagger(nn.Module):
    """Tags for words by a bidirectional LSTM (Huang et al., 2015, arXiv:1508.01991)."""

    def __init__(self, vocabulary: int = 12_000, spellings: int = 8, tags: int = 17) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, 100, padding_idx=0)
        self.spellings = nn.Embedding(spellings, 12)
        self.lstm = nn.LSTM(112, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.tags = nn.Linear(256, tags)

    def forward(self, words: torch.Tensor, spellings: torch.Tensor) -> torch.Tensor:
        """Scores of the tags, of shape (batch, length, tags)."""
        x = torch.cat([self.words(words), self.spellings(spellings)], dim=-1)
        x, _ = self.lstm(self.dropout(x))
        return self.tags(self.dropout(x))


class MultiHotDLRM(nn.Module):
    """DLRM (arXiv:1906.00091) with several values of each categorical feature."""

    def __init__(self, tables: int = 12, rows: int = 8_000, width: int = 48) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.dense = nn.Sequential(
            nn.Linear(9, 256), nn.ReLU(), nn.Linear(256, 96), nn.ReLU(), nn.Linear(96, width)
        )
        count = tables + 1
        row, column = torch.triu_indices(count, count, 1)
        self.register_buffer("pairs", row * count + column)
        self.over = nn.Sequential(
            nn.Linear(width + len(row), 384), nn.ReLU(), nn.Linear(384, 128), nn.ReLU(),
            nn.Linear(128, 1),
        )  # fmt: skip

    def forward(self, dense: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The chance of a click, for values of shape (batch, tables, values of each)."""
        x = self.dense(dense)
        vectors = torch.stack([x, *(bag(values[:, n]) for n, bag in enumerate(self.bags))], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        dots = products.index_select(1, self.pairs)
        return torch.sigmoid(self.over(torch.cat([x, dots], dim=1))).flatten()


class SqueezedSeparable(nn.Module):
    """A depthwise and a pointwise convolution with squeeze and excitation between them."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False
        )
        self.norm1 = nn.BatchNorm2d(inputs)
        self.squeeze = nn.Conv2d(inputs, inputs // 4, 1)
        self.excite = nn.Conv2d(inputs // 4, inputs, 1)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.added = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features with ``outputs`` channels."""
        y = functional.hardswish(self.norm1(self.depthwise(x)))
        gate = functional.relu(self.squeeze(y.mean(dim=(2, 3), keepdim=True)))
        y = y * functional.hardsigmoid(self.excite(gate))
        y = functional.hardswish(self.norm2(self.pointwise(y)))
        return x + y if self.added else y


class SeparableCNN(nn.Module):
    """A small classifier of separable convolutions (arXiv:1704.04861, arXiv:1709.01507)."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(
            SqueezedSeparable(32, 64, 3, 1),
            SqueezedSeparable(64, 96, 5, 2),
            SqueezedSeparable(96, 96, 5, 1),
            SqueezedSeparable(96, 160, 3, 2),
            SqueezedSeparable(160, 160, 3, 1),
            SqueezedSeparable(160, 256, 5, 2),
        )
        self.head = nn.Linear(256, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 100 classes for images of shape (batch, 3, 96, 96)."""
        x = functional.hardswish(self.norm(self.stem(images)))
        return self.head(functional.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


def _sentences(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words and how they are spelt."""
    return torch.randint(1, 12_000, (batch, 40)), torch.randint(8, (batch, 40))


def _visits(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numeric features, and six values of each of twelve categorical ones."""
    return torch.randn(batch, 9), torch.randint(8_000, (batch, 12, 6))


def unet_instance(batch: int = 4) -> dict[str, Any]:
    """A U-Net with instance normalisation segments scans of 112×112: inference."""
    torch.manual_seed(0)
    return {"module": InstanceUNet().eval(), "inputs": (torch.randn(batch, 1, 112, 112),)}


def unet_instance_training(batch: int = 2) -> dict[str, Any]:
    """A U-Net with instance normalisation segments scans: training with Nesterov momentum."""
    torch.manual_seed(0)
    module = InstanceUNet()
    labels = torch.randint(3, (batch, 112, 112))
    return {
        "module": module,
        "inputs": (torch.randn(batch, 1, 112, 112),),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": torch.optim.SGD(module.parameters(), 0.01, momentum=0.99, nesterov=True),
    }


def vit_dropout(batch: int = 4) -> dict[str, Any]:
    """A vision transformer classifies images of 64×64: inference."""
    torch.manual_seed(0)
    return {"module": DropoutViT().eval(), "inputs": (torch.randn(batch, 3, 64, 64),)}


def vit_dropout_training(batch: int = 4) -> dict[str, Any]:
    """A vision transformer with dropout classifies images of 64×64: training with NAdam."""
    torch.manual_seed(0)
    module = DropoutViT()
    labels = torch.randint(200, (batch,))
    return {
        "module": module,
        "inputs": (torch.randn(batch, 3, 64, 64),),
        "loss": lambda scores: functional.cross_entropy(scores, labels, label_smoothing=0.1),
        "optimizer": torch.optim.NAdam(module.parameters(), 5e-4),
    }


def lstm_tagger(batch: int = 32) -> dict[str, Any]:
    """A bidirectional LSTM tags sentences of 40 words: inference."""
    torch.manual_seed(0)
    return {"module": LSTMTagger().eval(), "inputs": _sentences(batch)}


def lstm_tagger_training(batch: int = 32) -> dict[str, Any]:
    """A bidirectional LSTM tags sentences of 40 words: training with Adagrad."""
    torch.manual_seed(0)
    module = LSTMTagger()
    tags = torch.randint(17, (batch, 40))
    return {
        "module": module,
        "inputs": _sentences(batch),
        "loss": lambda scores: functional.cross_entropy(scores.transpose(1, 2), tags),
        "optimizer": torch.optim.Adagrad(module.parameters(), 0.05),
    }


def dlrm_multi_hot(batch: int = 1024) -> dict[str, Any]:
    """A DLRM with multi-hot features predicts clicks: inference."""
    torch.manual_seed(0)
    return {"module": MultiHotDLRM().eval(), "inputs": _visits(batch)}


def dlrm_multi_hot_training(batch: int = 512) -> dict[str, Any]:
    """A DLRM with multi-hot features predicts clicks: training with Adamax."""
    torch.manual_seed(0)
    module = MultiHotDLRM()
    clicks = torch.randint(2, (batch,)).float()
    return {
        "module": module,
        "inputs": _visits(batch),
        "loss": lambda chances: functional.binary_cross_entropy(chances, clicks),
        "optimizer": torch.optim.Adamax(module.parameters(), 2e-3),
    }


def separable_cnn(batch: int = 16) -> dict[str, Any]:
    """A network of separable convolutions classifies images of 96×96: inference."""
    torch.manual_seed(0)
    return {"module": SeparableCNN().eval(), "inputs": (torch.randn(batch, 3, 96, 96),)}


def separable_cnn_training(batch: int = 16) -> dict[str, Any]:
    """A network of separable convolutions classifies images of 96×96: training with RMSprop."""
    torch.manual_seed(0)
    module = SeparableCNN()
    labels = torch.randint(100, (batch,))
    return {
        "module": module,
        "inputs": (torch.randn(batch, 3, 96, 96),),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": torch.optim.RMSprop(module.parameters(), 1e-3),
    }
