"""Networks that make images from images, written in Gluon from their papers. Without weights.

The DLBricks paper measured such networks in MXNet, where no package has them: each here follows
what its paper (or its authors' code, where the paper leaves it open) says of layers and widths.
Needs the environment of ``requirements-mxnet.lock``:

    bricks zoo build mx_cyclegan
"""

from __future__ import annotations

from typing import Any

from gluon_export import Network, shipped
from gluon_layers import Beside, Residual, Upsample, conv, deconv, sequence
from mxnet.gluon import HybridBlock, nn
from zoo_files import main

PREFIX = "mx_"
TASK = "image processing"


class ReflectedConv(HybridBlock):
    """A convolution whose input is continued by its mirror image instead of zeros."""

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.border = kernel // 2
        with self.name_scope():
            self.conv = nn.Conv2D(channels, kernel, stride)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Pad, then convolve."""
        side = (self.border, self.border)
        return self.conv(F.pad(x, mode="reflect", pad_width=(0, 0, 0, 0, *side, *side)))


def normed(block: HybridBlock, channels: int, *, active: bool = True) -> list[HybridBlock]:
    """A convolution, normalised for each image, and a ReLU."""
    norm = nn.InstanceNorm(in_channels=channels)
    return [block, norm, nn.Activation("relu")] if active else [block, norm]


def mirrored(channels: int, kernel: int, stride: int = 1, *, active: bool = True) -> Any:
    """A convolution of the kind that CycleGAN and Johnson's networks consist of."""
    return sequence(*normed(ReflectedConv(channels, kernel, stride), channels, active=active))


def cyclegan(blocks: int = 9) -> HybridBlock:
    """Zhu et al., ICCV 2017: the generator with residual blocks (section 7.2 of its appendix)."""
    width = 256
    layers = [mirrored(64, 7)]
    layers += [sequence(*normed(conv(c, 3, 2, 1), c)) for c in (128, 256)]
    layers += [
        Residual(sequence(mirrored(width, 3), mirrored(width, 3, active=False)))
        for _ in range(blocks)
    ]
    layers += [sequence(*normed(deconv(c, 3, 2, 1, 1), c)) for c in (128, 64)]
    return sequence(*layers, ReflectedConv(3, 7), nn.Activation("tanh"))


def style_transfer() -> HybridBlock:
    """Johnson et al., ECCV 2016 (its supplement), with instances normalised (Ulyanov et al. 2016).

    Upsampling before a convolution stands for its transposed convolutions, as in the versions
    that are used.
    """
    layers = [mirrored(32, 9), mirrored(64, 3, 2), mirrored(128, 3, 2)]
    layers += [
        Residual(sequence(mirrored(128, 3), mirrored(128, 3, active=False))) for _ in range(5)
    ]
    layers += [Upsample(), mirrored(64, 3), Upsample(), mirrored(32, 3)]
    return sequence(*layers, ReflectedConv(3, 9))


def pix2pix() -> HybridBlock:
    """Isola et al., CVPR 2017: the U-Net generator for 256x256 (section 6.1.1), 8 levels deep."""
    widths = (128, 256, 512, 512, 512, 512, 512)
    level: HybridBlock | None = None
    for depth in reversed(range(len(widths))):
        outer = 64 if depth == 0 else widths[depth - 1]
        innermost = level is None
        down = [nn.LeakyReLU(0.2), conv(widths[depth], 4, 2, 1, bias=False)]
        if not innermost:
            down.append(nn.BatchNorm())
        up = [nn.Activation("relu"), deconv(outer, 4, 2, 1, bias=False), nn.BatchNorm()]
        level = Beside(sequence(*down, *([] if innermost else [level]), *up))
    last = [nn.Activation("relu"), deconv(3, 4, 2, 1), nn.Activation("tanh")]
    return sequence(conv(64, 4, 2, 1), level, *last)


def vdsr() -> HybridBlock:
    """Kim et al., CVPR 2016: 20 convolutions of 64 that correct an enlarged image."""
    layers = [sequence(conv(64, 3, 1, 1), nn.Activation("relu")) for _ in range(19)]
    return Residual(sequence(*layers, conv(1, 3, 1, 1)))


def dncnn() -> HybridBlock:
    """Zhang et al., IEEE TIP 2017: 17 layers that find the noise of an image."""
    first = [conv(64, 3, 1, 1), nn.Activation("relu")]
    middle = [
        sequence(conv(64, 3, 1, 1, bias=False), nn.BatchNorm(), nn.Activation("relu"))
        for _ in range(15)
    ]
    return sequence(*first, *middle, conv(1, 3, 1, 1))


def srcnn() -> HybridBlock:
    """Dong et al., IEEE TPAMI 2016: the 9-5-5 network on an enlarged image."""
    relu = nn.Activation
    return sequence(
        conv(64, 9, 1, 4), relu("relu"), conv(32, 5, 1, 2), relu("relu"), conv(1, 5, 1, 2)
    )


class Shuffle(HybridBlock):
    """Channels become pixels (Shi et al., CVPR 2016)."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """So many times as high and wide."""
        return F.depth_to_space(x, block_size=self.factor)


def espcn() -> HybridBlock:
    """Shi et al., CVPR 2016: three times larger, at the cost of the small image."""
    return sequence(
        conv(64, 5, 1, 2), nn.Activation("tanh"), conv(32, 3, 1, 1), nn.Activation("tanh"),
        conv(9, 3, 1, 1), Shuffle(3),
    )  # fmt: skip


def srgan() -> HybridBlock:
    """Ledig et al., CVPR 2017: the generator (SRResNet), 16 blocks, four times larger."""

    def block() -> HybridBlock:
        return Residual(
            sequence(
                conv(64, 3, 1, 1), nn.BatchNorm(), nn.PReLU(), conv(64, 3, 1, 1), nn.BatchNorm()
            )
        )

    inner = sequence(*(block() for _ in range(16)), conv(64, 3, 1, 1), nn.BatchNorm())
    larger = [part for _ in range(2) for part in (conv(256, 3, 1, 1), Shuffle(2), nn.PReLU())]
    return sequence(conv(64, 9, 1, 4), nn.PReLU(), Residual(inner), *larger, conv(3, 9, 1, 4))


def colorization() -> HybridBlock:
    """Zhang et al., ECCV 2016: lightness to 313 colours at a quarter of the size.

    Eight groups of convolutions (its figure 2 and table 4); those of the fifth and sixth are
    dilated.
    """
    # (width, how many, stride of the last, dilation)
    groups = (
        (64, 2, 2, 1), (128, 2, 2, 1), (256, 3, 2, 1), (512, 3, 1, 1), (512, 3, 1, 2),
        (512, 3, 1, 2), (512, 3, 1, 1),
    )  # fmt: skip
    layers: list[HybridBlock] = []
    for width, count, stride, dilation in groups:
        for i in range(count):
            step = stride if i == count - 1 else 1
            layers += [conv(width, 3, step, dilation, dilation), nn.Activation("relu")]
        layers.append(nn.BatchNorm())
    layers += [deconv(256, 4, 2, 1), nn.Activation("relu")]
    layers += [part for _ in range(2) for part in (conv(256, 3, 1, 1), nn.Activation("relu"))]
    return sequence(*layers, conv(313, 1), Softmax())


class Softmax(HybridBlock):
    """Over channels, in each place."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Shares of the channels."""
        return F.softmax(x, axis=1)


def enhanced(blocks: int = 16) -> HybridBlock:
    """Lim et al., CVPR workshops 2017: the EDSR baseline, 16 blocks without norms, twice larger."""

    def block() -> HybridBlock:
        return Residual(sequence(conv(64, 3, 1, 1), nn.Activation("relu"), conv(64, 3, 1, 1)))

    body = Residual(sequence(*(block() for _ in range(blocks)), conv(64, 3, 1, 1)))
    return sequence(conv(64, 3, 1, 1), body, conv(256, 3, 1, 1), Shuffle(2), conv(3, 3, 1, 1))


def image(name: str, family: str, source: str, build: Any, *shape: int) -> Network:
    """A network by its name here; ``source`` is its paper."""
    inputs = (("data", (1, *shape)),)
    return Network(PREFIX + name, TASK, family, f"Gluon, after {source}", build, inputs)


NETWORKS = (
    image("colorization", "Colorization", "Zhang et al., ECCV 2016", colorization, 1, 224, 224),
    image("cyclegan", "CycleGAN", "Zhu et al., ICCV 2017", cyclegan, 3, 256, 256),
    image("cyclegan_6", "CycleGAN", "Zhu et al., ICCV 2017", lambda: cyclegan(6), 3, 128, 128),
    image("dncnn", "DnCNN", "Zhang et al., IEEE TIP 2017", dncnn, 1, 180, 180),
    image("edsr", "EDSR", "Lim et al., CVPR workshops 2017", enhanced, 3, 96, 96),
    image("espcn", "ESPCN", "Shi et al., CVPR 2016", espcn, 1, 224, 224),
    image("pix2pix", "pix2pix", "Isola et al., CVPR 2017", pix2pix, 3, 256, 256),
    image("srcnn", "SRCNN", "Dong et al., IEEE TPAMI 2016", srcnn, 1, 256, 256),
    image("srgan", "SRGAN", "Ledig et al., CVPR 2017", srgan, 3, 64, 64),
    image("style_transfer", "Fast style transfer", "Johnson et al., ECCV 2016", style_transfer,
          3, 224, 224),
    image("vdsr", "VDSR", "Kim et al., CVPR 2016", vdsr, 1, 256, 256),
)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_papers_images", NETWORKS))
