"""Results of the DLBricks paper (Li, Dakkak, Xiong, Hwu; ICPE 2020; arXiv:1911.07967, section 4).

Numbers are from its text or, where it only draws them, from the vector paths of its figures.
"""

from __future__ import annotations

from collections.abc import Mapping

MODELS = 50
TASKS = 5
LAYERS = 10_815
UNIQUE_LAYERS = 1_529
# Its most repetitive model, of so many layers.
LEAST_UNIQUE_LAYERS, LEAST_UNIQUE_SHARE = 1_029, 0.039

# Estimate over measured latency at G = 1 on c5.2xlarge, as the text says it. Its figure shows a
# geometric mean of .912, which is what GEOMEANS holds.
STATED_SYSTEM = "c5.2xlarge"
STATED_LOW, STATED_HIGH, STATED_GEOMEAN = 0.829, 0.981, 0.918

# Geometric means of estimate over measured latency for G = 1 … 10, by system (read off).
GEOMEANS = {
    "c5.xlarge": (0.958, 0.978, 0.981, 0.984, 0.985, 0.985, 0.986, 0.987, 0.978, 0.974),
    "c5.2xlarge": (0.912, 0.921, 0.987, 1.005, 0.995, 0.993, 1.011, 1.000, 0.994, 0.993),
    "c4.xlarge": (1.09, 1.08, 1.10, 1.11, 1.09, 1.10, 1.09, 1.09, 1.10, 1.07),
    "c4.2xlarge": (1.06, 1.02, 1.02, 1.03, 1.04, 1.06, 1.04, 1.04, 1.03, 1.02),
}

# Mean of |estimate / measured - 1| over the models on c5.2xlarge, for G = 1 … 6 (read off).
MEAN_ERRORS = (0.081, 0.088, 0.032, 0.016, 0.024, 0.020)
# The granularity that is best there, and how many of the models are then within 5 %.
BEST_GRANULARITY, BEST_WITHIN = 4, 48

# Sum of whole-model latencies over sum of unique brick latencies on c5.xlarge, for G = 1 … 10
# (read off); the text says up to 4.4.
SPEEDUP_SYSTEM = "c5.xlarge"
SPEEDUPS = (4.38, 3.67, 3.25, 3.09, 3.28, 3.15, 2.83, 2.91, 3.02, 3.06)

# The trained models for images that the authors' scripts run, by the network of the zoo that is the
# same or (RELATIVES) of the same kind. Those of one entry differ in weights, and in the size of the
# last layer. From github.com/rai-project/synthetic_benchmark, BenchmarkMXNetModel.m: 52, of which
# the paper takes 50, without naming them.
TRAINED: Mapping[str, tuple[str, ...]] = {
    "gluon_googlenet": (
        "Inception V1, ImageNet", "Inception V1, Places365", "Inception V1, salient objects",
    ),
    "gluon_inceptionv3": ("Inception V3",),
    "gluon_mobilenetv2_10": ("MobileNet V2",),
    "gluon_resnet50_v1": ("ResNet-50",),
    "gluon_resnet101_v1": (
        "ResNet-101, ImageNet", "ResNet-101, YFCC100m", "ResNet-101, CASIA-WebFace",
    ),
    "gluon_resnet152_v1": ("ResNet-152",),
    "gluon_senet_154": ("Squeeze-and-Excitation Net",),
    "gluon_squeezenet11": ("SqueezeNet V1.1",),
    "gluon_vgg16": (
        "VGG-16", "Age Estimation VGG-16, IMDB-WIKI", "Age Estimation VGG-16, Looking at People",
        "Gender Prediction VGG-16",
    ),
    "gluon_vgg19": ("VGG-19",),
    "mx_wide_resnet50_2": ("Wide ResNet-50-2",),
    "mx_style_transfer": ("AdaIN-Style",),
    "mx_colorization": ("Colorful Image Colorization",),
    "mx_cyclegan": tuple(
        f"CycleGAN {pair}"
        for pair in (
            "Apple-to-Orange", "Orange-to-Apple", "Horse-to-Zebra", "Zebra-to-Horse",
            "Monet-to-Photo", "Photo-to-Monet", "Photo-to-Cezanne", "Photo-to-Van Gogh",
            "Summer-to-Winter", "Winter-to-Summer",
        )
    ),
    "mx_pix2pix": ("Pix2pix Photo-to-Street-Map", "Pix2pix Street-Map-to-Photo"),
    "mx_vdsr": ("Very Deep Net for Super-Resolution",),
    "gluon_ssd_300_vgg16": ("SSD-VGG-300",),
    "gluon_ssd_512_vgg16": ("SSD-VGG-512",),
    "mx_yolo2_tiny": ("YOLO V2",),
    "mx_face_alignment": ("2D Face Alignment Net", "3D Face Alignment Net"),
    "mx_depth_resnet50": (
        "Single-Image Depth Perception Net, Depth in the Wild",
        "Single-Image Depth Perception Net, NYU Depth V2",
        "Single-Image Depth Perception Net, both",
    ),
    "mx_dilated_vgg16": ("Multi-scale Context Aggregation Net",),
    "mx_unet": ("U-Net",),
}  # fmt: skip
RELATIVES = ("mx_style_transfer", "mx_yolo2_tiny", "mx_depth_resnet50")
# Trained models without a counterpart in the zoo.
ABSENT = (
    "Ademxapp Model A", "Ademxapp Model A1, ADE20K", "Ademxapp Model A1, PASCAL VOC", "CapsNet",
    "ColorNet, ImageNet", "ColorNet, Places", "Unguided Volumetric Regression Net",
    "Wolfram ImageIdentify Net V1", "Yahoo Open NSFW Model V1",
)  # fmt: skip
