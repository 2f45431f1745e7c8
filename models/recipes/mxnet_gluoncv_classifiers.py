"""Export image classifiers of GluonCV, without weights.

Those of the DLBricks paper that Gluon's own zoo lacks (SENet, Xception, ResNeXt), and the
networks that came after. Their names here are GluonCV's behind ``gluon_``. Needs the environment
of ``requirements-mxnet.lock``:

    bricks zoo build gluon_senet_154
"""

from __future__ import annotations

from typing import Any

from gluon_export import IMAGE, Network, shipped
from gluoncv import __version__ as version
from gluoncv.model_zoo import get_model
from zoo_files import main

PREFIX = "gluon_"
SIDE_299 = (1, 3, 299, 299)  # what Xception was made for
CIFAR = (1, 3, 32, 32)


def classifier(gluon: str, family: str, shape: tuple[int, ...] = IMAGE, **options: Any) -> Network:
    """A network by its name in GluonCV; a second result, for training, is left out."""
    return Network(
        PREFIX + gluon.replace(".", ""),
        "image classification",
        family,
        f"GluonCV {version}, {gluon}",
        lambda: get_model(gluon, pretrained=False, **options),
        (("data", shape),),
        outputs=1,
    )


NETWORKS = (
    classifier("cifar_resnet20_v1", "ResNet", CIFAR),
    classifier("cifar_wideresnet16_10", "Wide ResNet", CIFAR),
    classifier("darknet53", "Darknet"),
    classifier("dla34", "DLA"),
    classifier("googlenet", "Inception"),
    classifier("hrnet_w18_c", "HRNet"),
    classifier("hrnet_w18_small_v1_c", "HRNet"),
    classifier("mobilenetv3_large", "MobileNet"),
    classifier("mobilenetv3_small", "MobileNet"),
    classifier("nasnet_4_1056", "NASNet"),
    classifier("resnest50", "ResNeSt"),
    classifier("resnet50_v1b", "ResNet"),
    classifier("resnet50_v1d", "ResNet"),
    classifier("resnext50_32x4d", "ResNeXt"),
    classifier("resnext101_32x4d", "ResNeXt"),
    classifier("se_resnet50_v1", "SENet"),
    classifier("se_resnext50_32x4d", "SENet"),
    classifier("senet_154", "SENet"),
    classifier("shufflenet_v1", "ShuffleNet"),
    classifier("shufflenet_v2", "ShuffleNet"),
    classifier("xception", "Xception", SIDE_299),
)

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_gluoncv_classifiers", NETWORKS))
