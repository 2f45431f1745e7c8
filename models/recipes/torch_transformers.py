"""Export networks of the transformers library, with random weights, from PyTorch.

Transformers for text, images and speech, and convolutional networks beside them. Sizes are chosen
so that a CPU takes milliseconds to a few hundred: some of hundreds of tiny operators, where what a
call costs shows, and some of few large weights, where memory does. No weights are shipped, so none
are downloaded: a network is built from its configuration.

Needs the environment of ``requirements-torch.lock``:

    bricks zoo build bert_mini
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers as hf
from zoo_files import (
    Shipped,
    keep_equal_constants_once,
    leave_out_notes,
    leave_out_values,
    main,
)

SEQUENCE = 64
OPSET = 18


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build a network, and what it is; ``inputs`` makes its inputs for a batch size."""

    name: str
    task: str
    family: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]
    names: tuple[str, ...]


class First(torch.nn.Module):
    """A network that gives its first result alone, as a tensor."""

    def __init__(self, inner: torch.nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.inner, self.names, self.fixed = inner, names, fixed

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        """The first result of the network for these inputs."""
        result = self.inner(**dict(zip(self.names, values, strict=True)), **self.fixed)
        return result[0]


def tokens(length: int = SEQUENCE) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Token numbers and a mask that hides none."""
    return lambda batch: (
        torch.ones(batch, length, dtype=torch.long),
        torch.ones(batch, length, dtype=torch.long),
    )


def image(side: int = 224) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """A picture of three channels."""
    return lambda batch: (torch.zeros(batch, 3, side, side),)


def sound(*shape: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Samples of a sound, or its spectrum."""
    return lambda batch: (torch.zeros(batch, *shape),)


TEXT = ("input_ids", "attention_mask")
PIXELS = ("pixel_values",)


def text(name: str, family: str, model: Any, config: Any, length: int = SEQUENCE) -> Recipe:
    """A recipe for a network that reads text."""
    fixed = {"use_cache": False} if getattr(config, "use_cache", False) else {}
    return Recipe(
        name, "text", family, lambda: First(model(config), TEXT, **fixed), tokens(length), TEXT
    )


def vision(name: str, family: str, model: Any, config: Any, side: int = 224) -> Recipe:
    """A recipe for an image classifier."""
    return Recipe(
        name,
        "image classification",
        family,
        lambda: First(model(config), PIXELS),
        image(side),
        PIXELS,
    )


def speech(name: str, family: str, model: Any, config: Any, key: str, *shape: int) -> Recipe:
    """A recipe for a network that listens."""
    return Recipe(
        name, "speech", family, lambda: First(model(config), (key,)), sound(*shape), (key,)
    )


RECIPES = (
    text(
        "bert_mini", "BERT", hf.BertModel,
        hf.BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                      intermediate_size=1024),
    ),
    text(
        "distilbert", "DistilBERT", hf.DistilBertModel,
        hf.DistilBertConfig(dim=384, n_layers=4, n_heads=6, hidden_dim=1536),
    ),
    text(
        "electra_small", "ELECTRA", hf.ElectraModel,
        hf.ElectraConfig(embedding_size=128, hidden_size=256, num_hidden_layers=8,
                         num_attention_heads=4, intermediate_size=1024),
    ),
    text(
        "albert", "ALBERT", hf.AlbertModel,
        hf.AlbertConfig(embedding_size=128, hidden_size=512, num_hidden_layers=6,
                        num_attention_heads=8, intermediate_size=2048),
    ),
    text(
        "mobilebert", "MobileBERT", hf.MobileBertModel,
        hf.MobileBertConfig(num_hidden_layers=8),
    ),
    text(
        "gpt2", "GPT-2", hf.GPT2LMHeadModel,
        hf.GPT2Config(n_embd=512, n_layer=4, n_head=8),
    ),
    text(
        "opt_wide", "OPT", hf.OPTModel,
        hf.OPTConfig(hidden_size=1536, ffn_dim=6144, num_hidden_layers=3,
                     num_attention_heads=12, vocab_size=8192, word_embed_proj_dim=1536),
        16,
    ),
    text(
        "llama_tiny", "Llama", hf.LlamaModel,
        hf.LlamaConfig(hidden_size=384, intermediate_size=1024, num_hidden_layers=6,
                       num_attention_heads=6, vocab_size=8192),
    ),
    text(
        "t5_encoder", "T5", hf.T5EncoderModel,
        hf.T5Config(d_model=384, d_kv=64, d_ff=1024, num_layers=5, num_heads=6,
                    attn_implementation="eager"),
    ),
    vision(
        "vit_tiny", "ViT", hf.ViTForImageClassification,
        hf.ViTConfig(hidden_size=192, num_hidden_layers=8, num_attention_heads=3,
                     intermediate_size=768),
    ),
    vision(
        "deit_small", "DeiT", hf.DeiTForImageClassification,
        hf.DeiTConfig(hidden_size=384, num_hidden_layers=4, num_attention_heads=6,
                      intermediate_size=1536),
    ),
    vision(
        "beit", "BEiT", hf.BeitForImageClassification,
        hf.BeitConfig(hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
                      intermediate_size=1024),
    ),
    vision(
        "swin", "Swin", hf.SwinForImageClassification,
        hf.SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[2, 4, 8, 16],
                      attn_implementation="eager"),
    ),
    vision(
        "convnext", "ConvNeXt", hf.ConvNextForImageClassification,
        hf.ConvNextConfig(depths=[2, 2, 4, 2], hidden_sizes=[48, 96, 192, 384]),
    ),
    vision(
        "poolformer", "PoolFormer", hf.PoolFormerForImageClassification,
        hf.PoolFormerConfig(),
    ),
    vision(
        "mobilevit", "MobileViT", hf.MobileViTForImageClassification,
        hf.MobileViTConfig(hidden_sizes=[96, 120, 144],
                           neck_hidden_sizes=[16, 32, 48, 64, 80, 96, 384]),
        256,
    ),
    vision(
        "segformer", "SegFormer", hf.SegformerForImageClassification,
        hf.SegformerConfig(),
    ),
    vision(
        "levit", "LeViT", hf.LevitForImageClassification,
        hf.LevitConfig(hidden_sizes=[128, 256, 384], depths=[2, 3, 4]),
    ),
    vision(
        "pvt_v2", "PVT", hf.PvtV2ForImageClassification,
        hf.PvtV2Config(),
    ),
    vision(
        "resnet18", "ResNet", hf.ResNetForImageClassification,
        hf.ResNetConfig(depths=[2, 2, 2, 2], layer_type="basic",
                        hidden_sizes=[64, 128, 256, 512]),
    ),
    vision(
        "resnet26", "ResNet", hf.ResNetForImageClassification,
        hf.ResNetConfig(depths=[2, 2, 2, 2]),
    ),
    vision(
        "mobilenet_v1", "MobileNet", hf.MobileNetV1ForImageClassification,
        hf.MobileNetV1Config(depth_multiplier=0.5),
    ),
    vision(
        "mobilenet_v2", "MobileNet", hf.MobileNetV2ForImageClassification,
        hf.MobileNetV2Config(),
    ),
    vision(
        "efficientnet_b0", "EfficientNet", hf.EfficientNetForImageClassification,
        hf.EfficientNetConfig(width_coefficient=1.0, depth_coefficient=1.0, image_size=224,
                              hidden_dim=1280),
    ),
    vision(
        "regnet_y", "RegNet", hf.RegNetForImageClassification,
        hf.RegNetConfig(depths=[1, 1, 4, 7], hidden_sizes=[24, 56, 152, 368], groups_width=8),
    ),
    speech(
        "wav2vec2", "wav2vec 2.0", hf.Wav2Vec2Model,
        hf.Wav2Vec2Config(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                          intermediate_size=1024, conv_dim=(128,) * 7,
                          num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=8),
        "input_values", 16000,
    ),
    speech(
        "whisper_encoder", "Whisper", hf.models.whisper.modeling_whisper.WhisperEncoder,
        hf.WhisperConfig(d_model=256, encoder_layers=4, encoder_attention_heads=4,
                         encoder_ffn_dim=1024, max_source_positions=250),
        "input_features", 80, 500,
    ),
)  # fmt: skip


def export(recipe: Recipe) -> onnx.ModelProto:
    """The network of ``recipe`` without its weights, its batch open to be changed."""
    torch.manual_seed(0)
    network = recipe.build().eval()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        # A batch of two, since the exporter takes a dimension of one for a constant.
        program = torch.onnx.export(
            network,
            recipe.inputs(2),
            input_names=list(recipe.names),
            dynamic_shapes=(tuple({0: torch.export.Dim.DYNAMIC} for _ in recipe.names),),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        program.save(str(path), external_data=True)
        model = onnx.load(str(path))
    leave_out_notes(model)
    leave_out_values(model, f"{recipe.name}.weights")
    keep_equal_constants_once(model)
    model.producer_name, model.producer_version = "bricks zoo", ""
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def shipped(recipe: Recipe) -> Shipped:
    """What the manifest says of it."""
    source = f"transformers {hf.__version__}, PyTorch {torch.__version__.split('+')[0]}"
    return Shipped(
        recipe.name, 1, recipe.task, recipe.family, "pytorch", source, "torch_transformers",
        lambda: export(recipe),
    )  # fmt: skip


if __name__ == "__main__":
    main(__doc__, [shipped(recipe) for recipe in RECIPES])
