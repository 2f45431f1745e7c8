"""Networks that find things, points, depth and areas in images, written in Gluon from their papers.

As ``mxnet_papers_images``: architectures that the DLBricks paper measured in MXNet, and no package
has there. Needs the environment of ``requirements-mxnet.lock``:

    bricks zoo build mx_dilated_vgg16
"""

from __future__ import annotations

from typing import Any

from gluon_export import IMAGE, Network, shipped
from gluon_layers import Beside, Residual, Upsample, conv, deconv, normed_conv, sequence
from mxnet.gluon import HybridBlock, nn
from zoo_files import main

PREFIX = "mx_"
LABELS = 21  # of PASCAL VOC, the background among them
VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # (width, convolutions) between poolings


def wide_resnet50_2() -> HybridBlock:
    """Zagoruyko and Komodakis, BMVC 2016: a ResNet-50 whose inner layers are twice as wide."""

    def block(inner: int, outer: int, stride: int, *, projected: bool) -> HybridBlock:
        body = sequence(
            normed_conv(inner, 1), normed_conv(inner, 3, stride, 1),
            conv(outer, 1, bias=False), nn.BatchNorm(),
        )  # fmt: skip
        shortcut = sequence(conv(outer, 1, stride, bias=False), nn.BatchNorm())
        return sequence(Residual(body, shortcut if projected else None), nn.Activation("relu"))

    layers = [normed_conv(64, 7, 2, 3), nn.MaxPool2D(3, 2, 1)]
    for stage, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            stride = 2 if stage and not i else 1
            layers.append(block(128 << stage, 256 << stage, stride, projected=not i))
    return sequence(*layers, nn.GlobalAvgPool2D(), nn.Dense(1000))


def yolo2_tiny() -> HybridBlock:
    """Redmon and Farhadi, CVPR 2017 (the authors' yolov2-tiny-voc): a map of predictions."""

    def layer(width: int) -> HybridBlock:
        return sequence(conv(width, 3, 1, 1, bias=False), nn.BatchNorm(), nn.LeakyReLU(0.1))

    layers = [part for width in (16, 32, 64, 128, 256) for part in (layer(width), nn.MaxPool2D(2))]
    # The sixth pooling keeps the size; the row and column that it lacks are put at the end.
    layers += [layer(512), OpenPool(), layer(1024), layer(1024)]
    return sequence(*layers, conv(125, 1))


class OpenPool(HybridBlock):
    """The greatest of four neighbours, in each place."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """As high and wide as before."""
        wider = F.pad(x, mode="edge", pad_width=(0, 0, 0, 0, 0, 1, 0, 1))
        return F.Pooling(wider, kernel=(2, 2), stride=(1, 1), pool_type="max")


def dilated_vgg16() -> HybridBlock:
    """Yu and Koltun, ICLR 2016: a dilated VGG-16 and its context module, in full size.

    The front end without the last two poolings (section 4), the context module of table 1, and
    the enlargement by eight of the authors' code.
    """

    def layer(width: int, kernel: int, dilation: int = 1) -> HybridBlock:
        padding = dilation * (kernel // 2)
        return sequence(conv(width, kernel, 1, padding, dilation), nn.Activation("relu"))

    layers: list[HybridBlock] = []
    for stage, (width, count) in enumerate(VGG16):
        layers += [layer(width, 3, 2 if stage == 4 else 1) for _ in range(count)]
        if stage < 3:
            layers.append(nn.MaxPool2D(2))
    layers += [layer(4096, 7, 4), layer(4096, 1), conv(LABELS, 1)]
    layers += [layer(LABELS, 3, dilation) for dilation in (1, 1, 2, 4, 8, 16, 1)]
    return sequence(*layers, conv(LABELS, 1), deconv(LABELS, 16, 8, 4, bias=False))


def unet() -> HybridBlock:
    """Ronneberger et al., MICCAI 2015, with borders kept and norms, as it is used since."""

    def twice(width: int) -> list[HybridBlock]:
        return [normed_conv(width, 3, 1, 1), normed_conv(width, 3, 1, 1)]

    level = sequence(nn.MaxPool2D(2), *twice(1024), deconv(512, 2, 2))
    for width in (512, 256, 128):
        level = sequence(
            nn.MaxPool2D(2), *twice(width), Beside(level), *twice(width), deconv(width // 2, 2, 2)
        )
    return sequence(*twice(64), Beside(level), *twice(64), conv(2, 1))


def depth() -> HybridBlock:
    """Laina et al., 3DV 2016: depth from a ResNet-50 and four steps of up-projection.

    The steps enlarge by repeating pixels, where the paper puts zeros between them.
    """
    from mxnet.gluon.model_zoo import vision

    encoder = vision.resnet50_v1().features[:-1]  # without the pooling to one place
    layers = [encoder, conv(1024, 1, bias=False), nn.BatchNorm()]
    for width in (512, 256, 128, 64):
        body = sequence(
            normed_conv(width, 5, 1, 2), conv(width, 3, 1, 1, bias=False), nn.BatchNorm()
        )
        shortcut = sequence(conv(width, 5, 1, 2, bias=False), nn.BatchNorm())
        layers += [Upsample(), Residual(body, shortcut), nn.Activation("relu")]
    return sequence(*layers, conv(1, 3, 1, 1))


class Hourglass(HybridBlock):
    """Down to half the size and up again, ``depth`` times within each other, and beside it."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        inner = Hourglass(depth - 1, width) if depth > 1 else hierarchy(width, width)
        self.low = sequence(
            nn.AvgPool2D(2), hierarchy(width, width), inner, hierarchy(width, width), Upsample()
        )
        self.high = hierarchy(width, width)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Both, added."""
        return self.high(x) + self.low(x)


class Hierarchy(HybridBlock):
    """Three convolutions, each of what the one before gave; all three are the result."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            sequence(nn.BatchNorm(), nn.Activation("relu"), conv(w, 3, 1, 1, bias=False))
            for w in (width // 2, width // 4, width // 4)
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """All three in channels."""
        first = self.first(x)
        second = self.second(first)
        return F.concat(first, second, self.third(second), dim=1)


def hierarchy(before: int, width: int) -> HybridBlock:
    """The block of Bulat and Tzimiropoulos, ICCV 2017 (A), figure 4b."""
    shortcut = sequence(nn.BatchNorm(), nn.Activation("relu"), conv(width, 1, bias=False))
    return Residual(Hierarchy(width), shortcut if before != width else None)


class FaceAlignment(HybridBlock):
    """Hourglasses one after the other, each told what the one before found."""

    def __init__(self, stacks: int, points: int = 68, width: int = 256) -> None:
        super().__init__()
        self.stem = sequence(
            normed_conv(64, 7, 2, 3), hierarchy(64, 128), nn.AvgPool2D(2),
            hierarchy(128, 128), hierarchy(128, width),
        )  # fmt: skip
        self.stacks = sequence(
            *(
                sequence(Hourglass(4, width), hierarchy(width, width), normed_conv(width, 1))
                for _ in range(stacks)
            )
        )
        self.maps = sequence(*(conv(points, 1) for _ in range(stacks)))
        self.back = sequence(*(conv(width, 1) for _ in range(stacks - 1)))
        self.told = sequence(*(conv(width, 1) for _ in range(stacks - 1)))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """A map for each point of a face, from the last hourglass."""
        x = self.stem(x)
        for i, stack in enumerate(self.stacks):
            found = stack(x)
            maps = self.maps[i](found)
            if i < len(self.back):
                x = x + self.back[i](found) + self.told[i](maps)
        return maps


def landmarks() -> HybridBlock:
    """Zhang et al., IEEE SPL 2016 (MTCNN): its output network, up to ten coordinates."""

    def layer(width: int, kernel: int) -> list[HybridBlock]:
        return [conv(width, kernel), nn.PReLU()]

    return sequence(
        *layer(32, 3), nn.MaxPool2D(3, 2, ceil_mode=True),
        *layer(64, 3), nn.MaxPool2D(3, 2), *layer(64, 3), nn.MaxPool2D(2),
        *layer(128, 2), nn.Dense(256), nn.PReLU(), nn.Dense(10),
    )  # fmt: skip


def scene(
    name: str, task: str, family: str, source: str, build: Any, shape: tuple[int, ...]
) -> Network:
    """A network by its name here; ``source`` is its paper."""
    inputs = (("data", shape),)
    return Network(PREFIX + name, task, family, f"Gluon, after {source}", build, inputs)


SEGMENTATION, REGRESSION = "semantic segmentation", "regression"
NETWORKS = (
    scene("depth_resnet50", REGRESSION, "FCRN", "Laina et al., 3DV 2016", depth,
          (1, 3, 224, 320)),
    scene("dilated_vgg16", SEGMENTATION, "Dilated", "Yu and Koltun, ICLR 2016", dilated_vgg16,
          (1, 3, 128, 128)),
    scene("face_alignment", REGRESSION, "FAN", "Bulat and Tzimiropoulos, ICCV 2017",
          lambda: FaceAlignment(1), (1, 3, 256, 256)),
    scene("face_landmarks", REGRESSION, "MTCNN", "Zhang et al., IEEE SPL 2016", landmarks,
          (1, 3, 48, 48)),
    scene("unet", SEGMENTATION, "U-Net", "Ronneberger et al., MICCAI 2015", unet,
          (1, 1, 256, 256)),
    scene("wide_resnet50_2", "image classification", "Wide ResNet",
          "Zagoruyko and Komodakis, BMVC 2016", wide_resnet50_2, IMAGE),
    scene("yolo2_tiny", "object detection", "YOLO", "Redmon and Farhadi, CVPR 2017", yolo2_tiny,
          (1, 3, 416, 416)),
)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_papers_scenes", NETWORKS))
