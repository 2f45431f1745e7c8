"""Export object detectors of GluonCV, without weights.

A detector ends in suppressing boxes that overlap, whose work depends on the scores: that stands in
no benchmark of layers, and is left out. SSD is exported up to the boxes and the scores of all
classes, YOLO up to its three maps of predictions, CenterNet up to its three maps (centres, sizes,
offsets). Detectors of two stages (Faster R-CNN, Mask R-CNN) suppress boxes in their middle, and
are not here. Needs the environment of ``requirements-mxnet.lock``:

    bricks zoo build gluon_ssd_300_vgg16
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluon_export import Network, shipped
from gluoncv import __version__ as version
from gluoncv.model_zoo import get_model
from mxnet.gluon import HybridBlock
from zoo_files import main

PREFIX = "gluon_"
BOX = 4


class Boxes(HybridBlock):
    """An SSD up to (boxes, scores of all classes, the background among them)."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.detector = detector

    def hybrid_forward(self, F: Any, x: Any) -> tuple[Any, Any]:
        """As the detector does, without picking the best."""
        ssd = self.detector
        features = ssd.features(x)

        def joined(predictors: Any, width: int) -> Any:
            maps = zip(features, predictors, strict=True)
            flat = [F.flatten(F.transpose(to(feature), (0, 2, 3, 1))) for feature, to in maps]
            return F.concat(*flat, dim=1).reshape((0, -1, width))

        scores = F.softmax(joined(ssd.class_predictors, ssd.num_classes + 1), axis=-1)
        offsets = joined(ssd.box_predictors, BOX)
        made = zip(features, ssd.anchor_generators, strict=True)
        anchors = [F.reshape(to(feature), shape=(1, -1)) for feature, to in made]
        anchors = F.concat(*anchors, dim=1).reshape((1, -1, BOX))
        return ssd.bbox_decoder(offsets, anchors), scores


class Predictions(HybridBlock):
    """A YOLO v3 up to what it predicts at each place, from the coarsest map to the finest."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.detector = detector

    def hybrid_forward(self, F: Any, x: Any) -> tuple[Any, ...]:
        """As the detector does, without decoding."""
        yolo = self.detector
        routes = []
        for stage in yolo.stages:
            x = stage(x)
            routes.append(x)
        found = []
        for i, (block, output) in enumerate(zip(yolo.yolo_blocks, yolo.yolo_outputs, strict=True)):
            x, tip = block(x)
            found.append(output.prediction(tip))
            if i < len(routes) - 1:
                wider = F.UpSampling(yolo.transitions[i](x), scale=2, sample_type="nearest")
                x = F.concat(wider, routes[-2 - i], dim=1)
        return tuple(found)


class Maps(HybridBlock):
    """A CenterNet up to its maps, before the highest points are picked."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.detector = detector

    def hybrid_forward(self, F: Any, x: Any) -> tuple[Any, ...]:
        """As the detector does in training, without clipping."""
        shared = self.detector.base_network(x)
        centres, *others = (head(shared) for head in self.detector.heads)
        return F.sigmoid(centres), *others


def detector(
    name: str, gluon: str, family: str, side: int, part: Callable[[Any], HybridBlock]
) -> Network:
    """A network by its name here and in GluonCV, up to what ``part`` makes of it."""

    def build() -> HybridBlock:
        return part(get_model(gluon, pretrained=False, pretrained_base=False))

    source = f"GluonCV {version}, {gluon}, without the suppression of overlapping boxes"
    shape = (1, 3, side, side)
    return Network(PREFIX + name, "object detection", family, source, build, (("data", shape),))


NETWORKS = (
    detector("center_net_dla34", "center_net_dla34_voc", "CenterNet", 512, Maps),
    detector(
        "center_net_mobilenetv3_small", "center_net_mobilenetv3_small_duc_voc",
        "CenterNet", 512, Maps,
    ),
    detector("center_net_resnet18", "center_net_resnet18_v1b_voc", "CenterNet", 512, Maps),
    detector("ssd_300_mobilenet025", "ssd_300_mobilenet0.25_voc", "SSD", 300, Boxes),
    detector("ssd_300_resnet34", "ssd_300_resnet34_v1b_voc", "SSD", 300, Boxes),
    detector("ssd_300_vgg16", "ssd_300_vgg16_atrous_voc", "SSD", 300, Boxes),
    detector("ssd_512_mobilenet10", "ssd_512_mobilenet1.0_voc", "SSD", 512, Boxes),
    detector("ssd_512_resnet50", "ssd_512_resnet50_v1_voc", "SSD", 512, Boxes),
    detector("ssd_512_vgg16", "ssd_512_vgg16_atrous_voc", "SSD", 512, Boxes),
    detector("yolo3_darknet53", "yolo3_darknet53_voc", "YOLO", 416, Predictions),
    detector("yolo3_mobilenet025", "yolo3_mobilenet0.25_voc", "YOLO", 416, Predictions),
    detector("yolo3_mobilenet10", "yolo3_mobilenet1.0_voc", "YOLO", 416, Predictions),
)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, shipped("mxnet_gluoncv_detectors", NETWORKS))
