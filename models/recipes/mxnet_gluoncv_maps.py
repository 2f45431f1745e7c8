"""Export networks of GluonCV that give maps: segmentation, poses, depth. Without weights.

Sizes of images are chosen so that a CPU takes at most a second, and so that pyramids of pooling
divide the features evenly. Needs the environment of ``requirements-mxnet.lock``:

    bricks zoo build gluon_fcn_resnet50
"""

from __future__ import annotations

from typing import Any

from gluon_export import Network, shipped
from gluoncv import __version__ as version
from gluoncv.model_zoo import get_model
from zoo_files import main

PREFIX = "gluon_"
SEGMENTATION, REGRESSION = "semantic segmentation", "regression"
PERSON = (1, 3, 256, 192)
STREET = (1, 3, 192, 640)
TWO_STREETS = (1, 6, 192, 640)


def network(
    name: str,
    gluon: str,
    task: str,
    family: str,
    shape: tuple[int, ...],
    outputs: int | None = None,
    **options: Any,
) -> Network:
    """A network by its name here and in GluonCV; options are those of GluonCV."""
    return Network(
        PREFIX + name,
        task,
        family,
        f"GluonCV {version}, {gluon}",
        lambda: get_model(gluon, pretrained=False, **options),
        (("data", shape),),
        outputs=outputs,
    )


def segmentation(name: str, gluon: str, family: str, side: int, **options: Any) -> Network:
    """A network that labels pixels; heads that help in training are left out."""
    options = {"base_size": side, "crop_size": side, **options}
    return network(name, gluon, SEGMENTATION, family, (1, 3, side, side), 1, **options)


def pose(gluon: str, family: str) -> Network:
    """A network that gives a map of places for each joint of a person."""
    return network(
        gluon.replace(".", "").removesuffix("_coco"), gluon, REGRESSION, family, PERSON,
        pretrained_base=False,
    )  # fmt: skip


NETWORKS = (
    segmentation("deeplab_resnet50", "deeplab_resnet50_ade", "DeepLab", 256, pretrained_base=False),
    segmentation("fastscnn", "fastscnn_citys", "Fast-SCNN", 384),
    segmentation("fcn_resnet50", "fcn_resnet50_voc", "FCN", 256, pretrained_base=False),
    network("hrnet_w18_small_v1_s", "hrnet_w18_small_v1_s", SEGMENTATION, "HRNet",
            (1, 3, 256, 256)),
    segmentation("icnet_resnet50", "icnet_resnet50_citys", "ICNet", 384, pretrained_base=False),
    segmentation("psp_resnet50", "psp_resnet50_ade", "PSPNet", 240, pretrained_base=False),
    pose("alpha_pose_resnet101_v1b_coco", "AlphaPose"),
    pose("mobile_pose_mobilenetv2_1.0", "Mobile Pose"),
    pose("mobile_pose_mobilenetv3_small", "Mobile Pose"),
    pose("mobile_pose_resnet18_v1b", "Mobile Pose"),
    pose("simple_pose_resnet18_v1b", "Simple Pose"),
    pose("simple_pose_resnet50_v1d", "Simple Pose"),
    pose("simple_pose_resnet101_v1b", "Simple Pose"),
    network("monodepth2_resnet18", "monodepth2_resnet18_kitti_mono_640x192", REGRESSION,
            "Monodepth", STREET, 1, pretrained_base=False),
    network("monodepth2_posenet_resnet18", "monodepth2_resnet18_posenet_kitti_mono_640x192",
            REGRESSION, "Monodepth", TWO_STREETS, pretrained_base=False),
)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_gluoncv_maps", NETWORKS))
