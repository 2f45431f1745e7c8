"""Pieces that the networks written from papers have in common. Knows Gluon; no network."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import HybridBlock, nn


def sequence(*blocks: HybridBlock) -> HybridBlock:
    """One block after the other."""
    result = nn.HybridSequential()
    result.add(*blocks)
    return result


def conv(
    channels: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    *,
    groups: int = 1,
    bias: bool = True,
) -> HybridBlock:
    """A convolution."""
    return nn.Conv2D(
        channels, kernel, stride, padding, dilation=dilation, groups=groups, use_bias=bias
    )


def normed_conv(
    channels: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1
) -> HybridBlock:
    """A convolution without bias, normalised over the batch, and a ReLU."""
    layer = conv(channels, kernel, stride, padding, dilation, bias=False)
    return sequence(layer, nn.BatchNorm(), nn.Activation("relu"))


def deconv(
    channels: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    more: int = 0,
    *,
    bias: bool = True,
) -> HybridBlock:
    """A transposed convolution; ``more`` rows and columns are added to what comes out."""
    return nn.Conv2DTranspose(channels, kernel, stride, padding, more, use_bias=bias)


class Residual(HybridBlock):
    """What a block gives is added to what went in, or to what ``shortcut`` makes of it."""

    def __init__(self, inside: HybridBlock, shortcut: HybridBlock | None = None) -> None:
        super().__init__()
        self.inside, self.shortcut = inside, shortcut

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """The sum."""
        return self.inside(x) + (x if self.shortcut is None else self.shortcut(x))


class Beside(HybridBlock):
    """What a block gives, behind what went in, in channels."""

    def __init__(self, inside: HybridBlock) -> None:
        super().__init__()
        self.inside = inside

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Both."""
        return F.concat(x, self.inside(x), dim=1)


class Upsample(HybridBlock):
    """Each pixel four times."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Twice as high and wide."""
        return F.UpSampling(x, scale=2, sample_type="nearest")
