"""Image classifiers built from convolutions: inference and training steps.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Images and labels are random, since latency does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class ConvNorm(nn.Sequential):
    """A convolution without bias, batch normalisation, and an activation if one is given."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: Callable[..., nn.Module] | None = None,
    ) -> None:
        layers = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        if activation is not None:
            layers.append(activation(inplace=True))
        super().__init__(*layers)


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut without parameters (He et al., 2016, option A)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.padding = (outputs - inputs) // 2
        stride = 2 if self.padding else 1
        self.layers = nn.Sequential(
            ConvNorm(inputs, outputs, 3, stride=stride, activation=nn.ReLU),
            ConvNorm(outputs, outputs, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of half the height and width where the number of channels grows."""
        shortcut = x
        if self.padding:
            channels = (self.padding, self.padding)
            shortcut = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, *channels))
        return functional.relu(self.layers(x) + shortcut)


class CifarResNet(nn.Module):
    """ResNet for CIFAR-10, of depth 6n + 2 (He et al., 2016, arXiv:1512.03385, section 4.2)."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        widths = [16] * (blocks + 1) + [32] * blocks + [64] * blocks
        self.stem = ConvNorm(3, 16, 3, activation=nn.ReLU)
        self.blocks = nn.Sequential(*(BasicBlock(i, o) for i, o in pairwise(widths)))
        self.classifier = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 10 classes for images of shape (batch, 3, 32, 32)."""
        return self.classifier(self.blocks(self.stem(images)).mean((2, 3)))


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut, with the stride in the second (ResNet v1.5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.layers = nn.Sequential(
            ConvNorm(inputs, width, 1, activation=nn.ReLU),
            ConvNorm(width, width, 3, stride=stride, activation=nn.ReLU),
            ConvNorm(width, outputs, 1),
        )
        self.shortcut = nn.Identity()
        if inputs != outputs:
            self.shortcut = ConvNorm(inputs, outputs, 1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features with four times ``width`` channels."""
        return functional.relu(self.layers(x) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    """ResNet-50 (He et al., 2016, arXiv:1512.03385)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 64, 7, stride=2, activation=nn.ReLU)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks: list[nn.Module] = []
        inputs = 64
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for number in range(count):
                stride = 2 if number == 0 and width > 64 else 1
                blocks.append(Bottleneck(inputs, width, stride))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 1000 classes for images of shape (batch, 3, side, side)."""
        return self.classifier(self.blocks(self.pool(self.stem(images))).mean((2, 3)))


class SqueezeExcitation(nn.Module):
    """Channels weighted by what the whole image shows (Hu et al., 2018, arXiv:1709.01507)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same features, weighted."""
        return x * self.weights(x)


class MobileRow(NamedTuple):
    """A row of the table that specifies MobileNetV3."""

    kernel: int
    expanded: int
    outputs: int
    squeezed: bool
    activation: Callable[..., nn.Module]
    stride: int


MOBILE_SMALL = (
    MobileRow(3, 16, 16, True, nn.ReLU, 2),
    MobileRow(3, 72, 24, False, nn.ReLU, 2),
    MobileRow(3, 88, 24, False, nn.ReLU, 1),
    MobileRow(5, 96, 40, True, nn.Hardswish, 2),
    MobileRow(5, 240, 40, True, nn.Hardswish, 1),
    MobileRow(5, 240, 40, True, nn.Hardswish, 1),
    MobileRow(5, 120, 48, True, nn.Hardswish, 1),
    MobileRow(5, 144, 48, True, nn.Hardswish, 1),
    MobileRow(5, 288, 96, True, nn.Hardswish, 2),
    MobileRow(5, 576, 96, True, nn.Hardswish, 1),
    MobileRow(5, 576, 96, True, nn.Hardswish, 1),
)


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, as a row of the table specifies."""

    def __init__(self, inputs: int, row: MobileRow) -> None:
        super().__init__()
        kernel, expanded, outputs, squeezed, activation, stride = row
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(ConvNorm(inputs, expanded, 1, activation=activation))
        layers.append(
            ConvNorm(
                expanded, expanded, kernel, stride=stride, groups=expanded, activation=activation
            )
        )
        if squeezed:
            layers.append(SqueezeExcitation(expanded))
        layers.append(ConvNorm(expanded, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The projected features, added to ``x`` where the shapes agree."""
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV3Small(nn.Module):
    """MobileNetV3-Small (Howard et al., 2019, arXiv:1905.02244)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 16, 3, stride=2, activation=nn.Hardswish)
        widths = [16, *(row.outputs for row in MOBILE_SMALL)]
        self.blocks = nn.Sequential(
            *(InvertedResidual(i, row) for i, row in zip(widths, MOBILE_SMALL, strict=False))
        )
        self.last = ConvNorm(96, 576, 1, activation=nn.Hardswish)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(1024, 1000)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 1000 classes for images of shape (batch, 3, side, side)."""
        return self.classifier(self.last(self.blocks(self.stem(images))).mean((2, 3)))


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised features, of shape (batch, channels, height, width)."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution and a scaled pair of linear layers, with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape."""
        inner = self.layers(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * inner).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al., 2022, arXiv:2201.03545), of the size Femto (arXiv:2301.00808)."""

    def __init__(self) -> None:
        super().__init__()
        widths, depths = (48, 96, 192, 384), (2, 2, 6, 2)
        layers = [nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0], eps=1e-6)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if stage:
                narrower = widths[stage - 1]
                layers.append(ChannelNorm(narrower, eps=1e-6))
                layers.append(nn.Conv2d(narrower, width, 2, stride=2))
            layers += [ConvNeXtBlock(width) for _ in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.classifier = nn.Linear(widths[-1], 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of 1000 classes for images of shape (batch, 3, side, side)."""
        return self.classifier(self.norm(self.layers(images).mean((2, 3))))


def _images(batch: int, side: int) -> torch.Tensor:
    return torch.randn(batch, 3, side, side)


def _training(
    module: nn.Module, images: torch.Tensor, classes: int, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    labels = torch.randint(classes, (len(images),))
    return {
        "module": module,
        "inputs": (images,),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": optimizer,
    }


def resnet44(batch: int = 16) -> dict[str, Any]:
    """ResNet-44 classifies images of CIFAR-10: inference."""
    torch.manual_seed(0)
    return {"module": CifarResNet(44).eval(), "inputs": (_images(batch, 32),)}


def resnet44_training(batch: int = 16) -> dict[str, Any]:
    """ResNet-44 classifies images of CIFAR-10: training with momentum SGD."""
    torch.manual_seed(0)
    module = CifarResNet(44)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    return _training(module, _images(batch, 32), 10, optimizer)


def resnet50(batch: int = 1) -> dict[str, Any]:
    """ResNet-50 classifies images of 224×224: inference."""
    torch.manual_seed(0)
    return {"module": ResNet50().eval(), "inputs": (_images(batch, 224),)}


def resnet50_training(batch: int = 2) -> dict[str, Any]:
    """ResNet-50 classifies images of 112×112: training with plain SGD and weight decay."""
    torch.manual_seed(0)
    module = ResNet50()
    optimizer = torch.optim.SGD(module.parameters(), 0.01, weight_decay=1e-4)
    return _training(module, _images(batch, 112), 1000, optimizer)


def resnet50_channels_last(batch: int = 1) -> dict[str, Any]:
    """ResNet-50 classifies images of 224×224 in memory format channels_last: inference."""
    torch.manual_seed(0)
    module = ResNet50().eval().to(memory_format=torch.channels_last)
    images = _images(batch, 224).to(memory_format=torch.channels_last)
    return {"module": module, "inputs": (images,)}


def mobilenet_v3(batch: int = 4) -> dict[str, Any]:
    """MobileNetV3-Small classifies images of 224×224: inference."""
    torch.manual_seed(0)
    return {"module": MobileNetV3Small().eval(), "inputs": (_images(batch, 224),)}


def mobilenet_v3_training(batch: int = 4) -> dict[str, Any]:
    """MobileNetV3-Small classifies images of 224×224: training with RMSprop."""
    torch.manual_seed(0)
    module = MobileNetV3Small()
    optimizer = torch.optim.RMSprop(
        module.parameters(), 0.001, alpha=0.9, eps=0.001, momentum=0.9, weight_decay=1e-5
    )
    return _training(module, _images(batch, 224), 1000, optimizer)


def convnext(batch: int = 2) -> dict[str, Any]:
    """ConvNeXt-Femto classifies images of 224×224: inference."""
    torch.manual_seed(0)
    return {"module": ConvNeXt().eval(), "inputs": (_images(batch, 224),)}


def convnext_training(batch: int = 4) -> dict[str, Any]:
    """ConvNeXt-Femto classifies images of 128×128: training with AdamW."""
    torch.manual_seed(0)
    module = ConvNeXt()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3, weight_decay=0.05)
    return _training(module, _images(batch, 128), 1000, optimizer)
