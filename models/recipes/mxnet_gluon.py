"""Export image classifiers of MXNet's Gluon model zoo, without weights.

Plain, residual, dense and depthwise networks, as the DLBricks paper measured them in MXNet. Their
names here are Gluon's behind ``gluon_``. Needs the environment of ``requirements-mxnet.lock``:

    bricks zoo build gluon_resnet50_v1
"""

from __future__ import annotations

from gluon_export import IMAGE, Network, shipped
from mxnet.gluon.model_zoo import vision
from zoo_files import main

PREFIX = "gluon_"
SIDE_299 = (1, 3, 299, 299)  # what Inception v3 was made for


def classifier(
    gluon: str, family: str, shape: tuple[int, ...] = IMAGE, prefix: str | None = None
) -> Network:
    """A network by its name in Gluon's zoo; ``prefix`` is what its layers' names begin with."""
    return Network(
        PREFIX + gluon.replace(".", ""),
        "image classification",
        family,
        f"Gluon model zoo, {gluon}",
        lambda: vision.get_model(gluon, prefix=prefix),
        (("data", shape),),
    )


NETWORKS = (
    classifier("alexnet", "AlexNet"),
    classifier("densenet121", "DenseNet"),
    classifier("densenet161", "DenseNet"),
    classifier("densenet169", "DenseNet"),
    classifier("densenet201", "DenseNet"),
    classifier("inceptionv3", "Inception", SIDE_299),
    classifier("mobilenet0.25", "MobileNet"),
    classifier("mobilenet0.5", "MobileNet"),
    # The first version of this file was built after mobilenet0.25, and has its names from there.
    classifier("mobilenet1.0", "MobileNet", prefix="mobilenet1_"),
    classifier("mobilenetv2_0.5", "MobileNet"),
    classifier("mobilenetv2_1.0", "MobileNet"),
    classifier("resnet18_v1", "ResNet"),
    classifier("resnet34_v1", "ResNet"),
    classifier("resnet50_v1", "ResNet"),
    classifier("resnet101_v1", "ResNet"),
    classifier("resnet152_v1", "ResNet"),
    classifier("resnet18_v2", "ResNet"),
    classifier("resnet34_v2", "ResNet"),
    classifier("resnet50_v2", "ResNet"),
    classifier("resnet101_v2", "ResNet"),
    classifier("resnet152_v2", "ResNet"),
    classifier("squeezenet1.0", "SqueezeNet"),
    classifier("squeezenet1.1", "SqueezeNet"),
    classifier("vgg11_bn", "VGG"),
    classifier("vgg16", "VGG"),
    classifier("vgg19", "VGG"),
)

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_gluon", NETWORKS))
